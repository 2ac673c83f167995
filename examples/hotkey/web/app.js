const $ = (id) => document.getElementById(id);
const says = {
	off: ["Unprotected.", "Whoever finds nothing loads."],
	on: ["Protected.", "One loads, the others wait for it."],
	stale: ["Protected.", "One loads, the others are served the old value."],
	near: ["Protected.", "One loads, and each server serves the value from its memory."],
};
let mode = "";

function draw(s) {
	if (s.mode !== mode) { // only when it changes: this is read out
		mode = s.mode;
		document.body.dataset.mode = mode;
		[$("name").textContent, $("text").textContent] = says[mode];
		$("protect").setAttribute("aria-checked", mode !== "off");
		$("stale").setAttribute("aria-checked", mode === "stale");
		$("near").setAttribute("aria-checked", mode === "near");
		$("stale").disabled = $("near").disabled = mode === "off";
	}
	$("setup").textContent = s.setup;
	const bars = s.rows.find((r) => r.mode === mode).bars ?? [];
	const most = Math.max(4, ...bars);
	$("bars").replaceChildren(...bars.map((loads) => {
		const bar = document.createElement("li");
		bar.textContent = loads;
		bar.style.height = `${20 + (loads / most) * 160}px`;
		bar.className = loads > 1 ? "over" : "fine";
		return bar;
	}));
	$("rows").replaceChildren(...s.rows.map((r) => {
		const tr = document.createElement("tr");
		tr.dataset.mode = r.mode;
		const per = r.expiries ? (r.loads / r.expiries).toFixed(2) : "–";
		for (const cell of [r.mode, r.requests, r.expiries, r.loads, per, r.most, ...["cached", "stale", "shared", "near"].map((from) => r.answers[from] ?? 0), r.errors]) {
			tr.insertCell().textContent = cell;
		}
		return tr;
	}));
}

function complain(text) {
	$("alert").hidden = !text;
	$("alert").textContent = text;
}

async function post(path, body) {
	const answer = await fetch(path, { method: "POST", body });
	complain(answer.ok ? "" : await answer.text());
}

const change = (to) => post("mode", new URLSearchParams({ mode: to }));
$("protect").addEventListener("click", () => change(mode === "off" ? "on" : "off"));
$("stale").addEventListener("click", () => change(mode === "stale" ? "on" : "stale"));
$("near").addEventListener("click", () => change(mode === "near" ? "on" : "near"));
$("invalidate").addEventListener("click", () => post("invalidate"));

for (;;) {
	try {
		draw(await (await fetch("state")).json());
	} catch {
		complain("The program has ended, or can’t be reached.");
	}
	await new Promise((done) => setTimeout(done, 250));
}
