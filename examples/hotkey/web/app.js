import { bars, curve, stack } from "./chart.js";

const $ = (id) => document.getElementById(id);
const put = (id, text) => {
	if ($(id).textContent !== String(text)) $(id).textContent = text;
};
const count = new Intl.NumberFormat("en").format;
const ms = (v) => (v < 10 ? `${v.toFixed(1)} ms` : v < 999.5 ? `${Math.round(v)} ms` : `${Number((v / 1000).toFixed(2))} s`);
const some = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

const settings = await (await fetch("settings")).json();
put("setup", `${some(settings.processes, "server process", "server processes")}, each with ${some(settings.clients, "client")}, on ${settings.server}. ` +
	`All want one value, which is fresh for ${ms(settings.ttl)}; making it takes the origin ${ms(settings.load)} when it is left alone.`);
put("alone", ms(settings.load));

let shownMode = null;
let latest = null;

function state(p) {
	document.body.dataset.mode = p.mode;
	if (p.mode !== shownMode) {
		shownMode = p.mode;
		// Only when it changes: this is read out.
		put("state-name", p.mode === "off" ? "Unprotected" : "Protected");
		$("protect").setAttribute("aria-checked", p.mode !== "off");
		$("stale").setAttribute("aria-checked", p.mode === "on+stale");
		$("stale").disabled = p.mode === "off";
	}
	const loads = p.last === 0 ? "nothing has expired yet" : `${some(p.last, "load")} at the last expiry`;
	const what = {
		off: `Whoever finds nothing loads: ${loads}.`,
		on: `One loads, the others wait for it: ${loads}.`,
		"on+stale": `One loads, the others are served the old value: ${loads}.`,
	};
	put("state-text", what[p.mode]);
}

function figures(p) {
	put("per-expiry", p.expiries ? Number(p.per_expiry.toFixed(p.per_expiry < 10 ? 2 : 1)) : "–");
	put("loads", count(p.loads));
	put("expiries", count(p.expiries));
	put("running", count(p.running));
	put("most", p.loads ? count(p.most) : "–");
	put("took", p.took ? ms(p.took) : "–");
	put("rate", count(p.rate));
	put("p99", p.p99 ? ms(p.p99) : "–");
	put("p50", p.p50 ? ms(p.p50) : "–");
	const errors = p.total.errors;
	$("alert").hidden = !errors;
	if (errors) put("alert", `${some(errors, "request")} failed. The last one: ${p.failed}`);
}

function charts(p) {
	const options = { now: p.now, seconds: settings.shown, frames: p.frames };
	bars($("bars"), p.bars, options);
	stack($("answers"), p.frames, ["hits", "stale", "waits", "loaded"], 1 / settings.frame, options);
	curve($("once"), p.frames, "at_once", 4, options);
	curve($("slow"), p.frames, "p99", 10, options);
	const all = p.bars.map((b) => b.loads);
	put("bars-text", all.length ? `In the last ${settings.shown} seconds: ${some(all.length, "expiry", "expiries")}, with ${Math.min(...all)} to ${Math.max(...all)} loads each.` : "");
	put("answers-text", `${count(p.rate)} in the last second.`);
	put("once-text", `${p.running} now, at most ${Math.max(0, ...p.frames.map((f) => f.at_once))} in the last ${settings.shown} seconds.`);
	put("slow-text", `${ms(p.frames.at(-1).p99)} in the last second.`);
}

function row(name, cells) {
	const tr = document.createElement("tr");
	const th = document.createElement("th");
	th.scope = "row";
	th.textContent = name;
	tr.append(th, ...cells.map((cell) => {
		const td = document.createElement("td");
		[td.textContent, td.className] = Array.isArray(cell) ? cell : [cell, ""];
		return td;
	}));
	return tr;
}

function tables(p) {
	$("compare").replaceChildren(...p.phases.map((f) => {
		const seen = f.expiries > 0;
		const grade = !seen ? "" : f.per_expiry > 1 ? "over" : "fine";
		const tr = row(f.name, [
			count(f.requests), count(f.expiries), count(f.loads),
			[seen ? f.per_expiry.toFixed(2) : "–", grade], count(f.most), seen ? ms(f.p50) : "–", seen ? ms(f.p99) : "–",
		]);
		tr.setAttribute("aria-current", f.mode === p.mode);
		return tr;
	}));
	const cells = (c) => [c.rate, c.hits, c.stale, c.waits, c.loaded, c.loads, c.errors].map((n) => count(n));
	$("processes").replaceChildren(...p.processes.map((c, i) => row(`Process ${i + 1}`, cells(c))));
	$("total").replaceChildren(row("All", cells(p.total)));
}

function draw(p) {
	latest = p;
	state(p);
	figures(p);
	charts(p);
	tables(p);
	document.body.dataset.epoch = p.epoch;
}

async function post(path, body) {
	try {
		const answer = await fetch(path, { method: "POST", body });
		if (!answer.ok) throw new Error(await answer.text());
	} catch (e) {
		$("alert").hidden = false;
		put("alert", `That did not work: ${e.message}`);
	}
}

const change = (mode) => post("mode", new URLSearchParams({ mode }));
$("protect").addEventListener("click", () => change(shownMode === "off" ? "on" : "off"));
$("stale").addEventListener("click", () => change(shownMode === "on+stale" ? "on" : "on+stale"));
$("invalidate").addEventListener("click", () => post("invalidate"));
addEventListener("resize", () => latest && charts(latest));

const live = new EventSource("live");
live.onmessage = (event) => draw(JSON.parse(event.data));
live.onerror = () => {
	document.body.dataset.mode = "";
	shownMode = null;
	put("state-name", "Not connected");
	put("state-text", "The program has ended, or can’t be reached.");
};
