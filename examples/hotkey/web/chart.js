// Charts of the last seconds, drawn anew with each picture: a few hundred points
// four times a second are not worth more.

const NS = "http://www.w3.org/2000/svg";
const edge = { left: 44, right: 8, top: 16, bottom: 20 };

function element(name, attributes, text) {
	const e = document.createElementNS(NS, name);
	for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
	if (text !== undefined) e.textContent = text;
	return e;
}

// nice is the next round number that is not below v.
function nice(v) {
	const unit = 10 ** Math.floor(Math.log10(v));
	return [1, 1.2, 1.6, 2, 3, 4, 6, 8, 10].map((n) => n * unit).find((n) => n >= v);
}

// Chart is an empty chart from now-seconds to now and from 0 to max, with the
// times at which there was no protection shaded.
class Chart {
	constructor(svg, { now, seconds, max, frames }) {
		this.parts = [];
		this.svg = svg;
		this.width = svg.clientWidth;
		this.height = svg.clientHeight;
		this.now = now;
		this.seconds = seconds;
		this.max = nice(max);
		this.shade(frames);
		for (const part of [0, 0.5, 1]) {
			const y = this.y(this.max * part);
			this.add("line", { class: "grid", x1: edge.left, x2: this.width - edge.right, y1: y, y2: y });
			this.add("text", { x: edge.left - 6, y: y + 4, "text-anchor": "end" }, this.max * part);
		}
		this.add("text", { x: edge.left, y: this.height - 4 }, `${seconds} s ago`);
		this.add("text", { x: this.width - edge.right, y: this.height - 4, "text-anchor": "end" }, "now");
	}

	x(at) {
		const inside = this.width - edge.left - edge.right;
		return this.width - edge.right - ((this.now - at) / this.seconds) * inside;
	}

	y(value) {
		return this.height - edge.bottom - (value / this.max) * (this.height - edge.top - edge.bottom);
	}

	add(name, attributes, text) {
		this.parts.push(element(name, attributes, text));
	}

	shade(frames) {
		let from = null;
		frames.forEach((f, i) => {
			const last = i === frames.length - 1;
			if (f.mode === "off" && from === null) from = i > 0 ? frames[i - 1].at : f.at;
			if (from === null || (f.mode === "off" && !last)) return;
			const left = Math.max(edge.left, this.x(from));
			const width = this.x(f.mode === "off" ? f.at : frames[i - 1].at) - left;
			from = null;
			if (width <= 0) return;
			this.add("rect", { class: "unprotected", x: left, width, y: edge.top, height: this.height - edge.top - edge.bottom });
			if (width > 100) this.add("text", { x: left + 6, y: edge.top - 4 }, "protection off");
		});
	}

	draw() {
		this.svg.replaceChildren(...this.parts);
	}
}

// bars draws how many loads each expiry had.
export function bars(svg, all, options) {
	const c = new Chart(svg, { ...options, max: Math.max(4, ...all.map((b) => b.loads * 1.15)) }); // room for the numbers
	all.forEach((b, i) => {
		const x = c.x(b.at);
		if (x < edge.left) return;
		// A bar is as wide as there is room until the next one.
		const room = (i + 1 < all.length ? c.x(all[i + 1].at) : c.width - edge.right) - x;
		const width = Math.max(3, Math.min(16, room - 3));
		const y = Math.min(c.y(b.loads), c.y(0) - 2);
		c.add("rect", { class: b.mode === "off" ? "off" : "on", x, y, width, height: c.y(0) - y, rx: 1 });
		if (room > 9 * String(b.loads).length) c.add("text", { class: "value", x: x + width / 2, y: y - 4, "text-anchor": "middle" }, b.loads);
	});
	c.draw();
}

// stack draws parts of a whole above each other.
export function stack(svg, frames, names, scale, options) {
	const sums = frames.map((f) => names.reduce((sum, n) => sum + f[n], 0) * scale);
	const c = new Chart(svg, { ...options, frames, max: Math.max(10, ...sums) });
	const below = frames.map(() => 0);
	for (const name of names) {
		const lower = below.map((v, i) => `${c.x(frames[i].at)},${c.y(v)}`).reverse();
		frames.forEach((f, i) => (below[i] += f[name] * scale));
		const upper = below.map((v, i) => `${c.x(frames[i].at)},${c.y(v)}`);
		if (frames.some((f) => f[name] > 0)) c.add("polygon", { class: name, points: [...upper, ...lower].join(" ") });
	}
	c.draw();
}

// curve draws one value.
export function curve(svg, frames, name, least, options) {
	const c = new Chart(svg, { ...options, frames, max: Math.max(least, ...frames.map((f) => f[name])) });
	c.add("polyline", { class: "curve", points: frames.map((f) => `${c.x(f.at)},${c.y(f[name])}`).join(" ") });
	c.draw();
}
