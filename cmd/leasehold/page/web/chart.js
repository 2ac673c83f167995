const NS = "http://www.w3.org/2000/svg";

// draw puts two curves into an svg: use as an area, waiting as a line. Each has the
// height of the greater of its most and a bound.
export function draw(svg, [use, waiting], bound, width, height) {
	svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
	svg.setAttribute("preserveAspectRatio", "none");
	const most = Math.max(1, bound || 0, ...use, ...waiting);
	const spans = 120;
	const x = (i) => width - ((use.length - 1 - i) * width) / (spans - 1);
	const y = (v) => height - 1.5 - (v * (height - 4)) / most;
	const parts = [];
	if (bound > 0) parts.push(["line", "bound", {x1: 0, x2: width, y1: y(bound), y2: y(bound)}]);
	if (use.length > 0) {
		const points = use.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`);
		const first = x(0).toFixed(1);
		parts.push(["polygon", "area", {points: `${first},${height} ${points.join(" ")} ${width},${height}`}]);
		parts.push(["polyline", "use", {points: points.join(" ")}]);
		if (waiting.some((v) => v > 0)) {
			parts.push(["polyline", "wait", {points: waiting.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ")}]);
		}
	}
	while (svg.children.length > parts.length) svg.lastChild.remove();
	parts.forEach(([name, kind, attributes], i) => {
		let part = svg.children[i];
		if (!part || part.tagName !== name) {
			const fresh = document.createElementNS(NS, name);
			if (part) part.replaceWith(fresh);
			else svg.append(fresh);
			part = fresh;
		}
		part.setAttribute("class", kind);
		part.setAttribute("vector-effect", "non-scaling-stroke");
		for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
	});
}
