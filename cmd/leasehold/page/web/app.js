import {draw} from "./chart.js";

// What comes from Redis is put into the page as text alone, never as markup.

const $ = (id) => document.getElementById(id);
const words = {mutex: "lock", semaphore: "permits", cache: "cache", guard: "guard"};

// view is what is shown; it stands in the address, so that a link shows the same.
const fromAddress = () => {
	const q = new URLSearchParams(location.hash.slice(1));
	return {
		q: q.get("q") ?? "", kind: q.get("kind") ?? "", family: q.get("family") ?? "", sort: q.get("sort") ?? "",
		idle: q.get("idle") === "1", key: q.get("key") ?? "", rows: 50,
	};
};
let view = fromAddress();
let last = null;
let source = null;
let opener = null; // what had the focus before details were opened

function address() {
	const q = new URLSearchParams();
	for (const name of ["q", "kind", "family", "sort", "key"]) if (view[name]) q.set(name, view[name]);
	if (view.idle) q.set("idle", "1");
	return q;
}

function go(change) {
	view = {...view, ...change};
	const hash = address().toString();
	history.replaceState(null, "", hash ? "#" + hash : location.pathname);
	watch();
	if (last) render(last);
}

function watch() {
	source?.close();
	const q = address();
	q.set("rows", view.rows);
	source = new EventSource("events?" + q);
	source.onmessage = (e) => {
		last = JSON.parse(e.data);
		render(last);
	};
	source.onerror = () => {
		lamp("off", source.readyState === EventSource.CLOSED ? "refused: load the page again" : "no connection; trying again");
	};
}

function lamp(state, text) {
	$("lamp").dataset.state = state;
	if ($("status-text").textContent !== text) $("status-text").textContent = text;
}

const count = new Intl.NumberFormat("en");

function duration(ms) {
	if (ms < 0) return "-" + duration(-ms);
	if (ms < 1000) return `${Math.round(ms)} ms`;
	const s = ms / 1000;
	if (s < 9.95) return `${s.toFixed(1)} s`;
	if (s < 60) return `${Math.floor(s)} s`;
	if (s < 3600) return `${Math.floor(s / 60)} m ${Math.floor(s) % 60} s`;
	if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} m`;
	return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

function bytes(n) {
	if (n < 1000) return `${n} B`;
	if (n < 1e6) return `${(n / 1000).toFixed(1)} kB`;
	return `${(n / 1e6).toFixed(1)} MB`;
}

// el makes an element; strings below it become text.
function el(name, attributes, ...children) {
	const e = document.createElement(name);
	for (const [key, value] of Object.entries(attributes ?? {})) {
		if (value === true) e.setAttribute(key, "");
		else if (value !== false && value != null) e.setAttribute(key, value);
	}
	e.append(...children.filter((c) => c != null));
	return e;
}

// set changes a text only where it differs, so that selections stay.
function set(e, text) {
	if (e.textContent !== text) e.textContent = text;
}

function keyName(r) {
	if (r.scope === "total") return "(total)";
	if (r.scope === "loads") return "(loads)";
	return r.key;
}

function inUse(r) {
	if (r.kind === "guard" || r.error) return "–"; // what could not be read is not 0
	if (r.kind === "cache" && !r.scope) return r.inUse > 0 ? "loading" : "–";
	return r.limit > 0 ? `${count.format(r.inUse)} / ${count.format(r.limit)}` : count.format(r.inUse);
}

function note(r) {
	if (r.error) return r.error;
	const all = [];
	if (r.keeps) all.push("may be idle");
	if (r.storedLimit) all.push("limit set");
	if (r.cachedBytes) all.push(r.freshForMs > 0 ? `${bytes(r.cachedBytes)}, fresh for ${duration(r.freshForMs)}` : `${bytes(r.cachedBytes)}, stale`);
	if (r.schema) all.push(`schema ${r.schema}`);
	if (r.failedForMs) all.push("failure remembered");
	return all.join(", ");
}

const fill = (r) => (r.limit > 0 ? Math.min(1, r.inUse / r.limit) : 0);

function render(s) {
	if (s.error) {
		lamp("bad", "Redis tells nothing new");
	} else {
		lamp("on", `live · ${count.format(s.keys)} ${s.keys === 1 ? "key" : "keys"}, scanned ${duration(s.scanAge)} ago`);
	}
	$("trouble").hidden = !s.error;
	set($("trouble"), s.error ?? "");
	controls(s);
	families(s.families);
	rows(s);
	details(s);
	document.body.dataset.ready = "1";
}

function controls(s) {
	if (document.activeElement !== $("search") && $("search").value !== view.q) $("search").value = view.q;
	for (const b of $("kinds").children) b.setAttribute("aria-pressed", String(b.dataset.kind === view.kind));
	$("sort").value = view.sort;
	$("idle").checked = view.idle;
	set($("matching"), count.format(s.matching));
	$("family-off").hidden = !view.family;
	set($("family-off"), `${view.family} ✕`);
	$("family-off").setAttribute("aria-label", `Show all families, not only ${view.family}`);
	$("more").hidden = s.matching <= s.rows.length || view.rows >= 500;
	set($("more"), `Show more of ${count.format(s.matching)}`);
	$("none").hidden = s.rows.length > 0;
}

// keep makes the children of parent those of items, reusing what is there.
function keep(parent, items, idOf, make, update) {
	const old = new Map([...parent.children].map((e) => [e.dataset.id, e]));
	let at = parent.firstElementChild;
	for (const item of items) {
		const id = idOf(item);
		let e = old.get(id);
		old.delete(id);
		if (!e) {
			e = make(item);
			e.dataset.id = id;
		}
		if (e === at) at = at.nextElementSibling;
		else parent.insertBefore(e, at);
		update(e, item);
	}
	for (const e of old.values()) e.remove();
}

function families(all) {
	const shown = all.filter((f) => !view.kind || f.kind === view.kind);
	keep($("families"), shown, (f) => f.kind + ":" + f.name, makeFamily, updateFamily);
}

function makeFamily(f) {
	const card = el("button", {type: "button", class: "card"},
		el("span", {class: "kind"}, words[f.kind]), el("span", {class: "name"}, f.name),
		el("span", {class: "big"}), el("span", {class: "small"}));
	const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
	svg.setAttribute("aria-hidden", "true");
	card.append(svg);
	card.addEventListener("click", () => {
		const off = view.family === f.name && view.kind === f.kind;
		go(off ? {family: "", kind: ""} : {family: f.name, kind: f.kind});
	});
	return card;
}

function updateFamily(card, f) {
	const big = card.querySelector(".big"), small = card.querySelector(".small");
	let text = "", more = [];
	if (f.kind === "cache") {
		text = `${count.format(f.cached)} cached`;
		more.push(f.bytes ? bytes(f.bytes) : "", f.inUse ? `${count.format(f.inUse)} loading` : "", f.maxLoads ? `${f.loads ?? 0} of ${f.maxLoads} loads` : "");
	} else if (f.kind === "guard") {
		text = `${count.format(f.keys)} guarded`;
	} else {
		text = f.total ? `${count.format(f.inUse)} of ${count.format(f.total)}` : `${count.format(f.inUse)} ${f.kind === "mutex" ? "held" : "in use"}`;
		more.push(`${count.format(f.keys)} ${f.keys === 1 ? "key" : "keys"}`);
	}
	if (f.waiting) more.push(`${count.format(f.waiting)} waiting, ${duration(f.longest)}`);
	set(big, text);
	set(small, more.filter(Boolean).join(" · "));
	card.classList.toggle("queue", f.waiting > 0);
	card.setAttribute("aria-pressed", String(view.family === f.name && view.kind === f.kind));
	draw(card.querySelector("svg"), f.past.map((p) => p ?? []), f.total || 0, 120, 26);
}

function rows(s) {
	keep($("rows"), s.rows, (r) => r.id, makeRow, updateRow);
}

function makeRow(r) {
	const name = el("button", {type: "button", class: "open"}, el("span", {class: "kind"}, words[r.kind]), el("span", {class: "family"}, r.family), el("span", {class: "key"}, keyName(r)));
	const tr = el("tr", null,
		el("td", {class: "name"}, name),
		el("td", {class: "num use"}, el("span"), el("progress", {max: "1", value: "0", "aria-hidden": "true"})),
		el("td", {class: "num held"}, el("span"), el("small")), el("td", {class: "num waiting"}), el("td", {class: "num longest"}), el("td", {class: "note"}));
	tr.addEventListener("click", () => open(r.id, name));
	return tr;
}

function updateRow(tr, r) {
	set(tr.querySelector(".use span"), inUse(r));
	const bar = tr.querySelector("progress");
	bar.value = fill(r);
	bar.hidden = !(r.limit > 0) || r.kind === "guard" || (r.kind === "cache" && !r.scope);
	bar.classList.toggle("full", fill(r) >= 1 && r.waiting > 0);
	set(tr.querySelector(".held span"), held(r.heldForMs, r.overlong));
	set(tr.querySelector(".held small"), r.usualHoldMs && r.heldForMs > r.usualHoldMs ? `usual ${duration(r.usualHoldMs)}` : "");
	set(tr.querySelector(".waiting"), r.waiting ? count.format(r.waiting) : "");
	set(tr.querySelector(".longest"), r.longestWaitMs ? duration(r.longestWaitMs) : "");
	set(tr.querySelector(".note"), note(r));
	tr.classList.toggle("queue", r.waiting > 0);
	tr.classList.toggle("hangs", Boolean(r.overlong));
	tr.classList.toggle("chosen", r.id === view.key);
	tr.querySelector(".open").setAttribute("aria-expanded", String(r.id === view.key));
}

// held is for how long a lease is held; one with "!" may hang.
function held(time, hangs) {
	return time ? duration(time) + (hangs ? " !" : "") : "";
}

function open(id, from) {
	opener = from ?? null;
	go({key: id});
	$("detail").focus({preventScroll: true});
}

function close() {
	if (!view.key) return;
	const id = view.key;
	go({key: ""});
	const row = [...$("rows").children].find((tr) => tr.dataset.id === id);
	(row?.querySelector(".open") ?? opener)?.focus({preventScroll: true});
}

function details(s) {
	const d = s.detail;
	const shown = view.key !== "" && (s.gone || (d && d.id === view.key));
	if (view.key !== "" && !shown) return; // it comes with the next state
	$("detail").hidden = !shown;
	document.body.classList.toggle("detailed", shown);
	if (!shown) return;
	if ($("d-limit").dataset.of !== view.key) $("d-revoke-said").textContent = "";
	$("d-limit").hidden = !s.changes || s.gone || d.kind !== "semaphore" || d.scope === "loads";
	if ($("d-limit").dataset.of !== view.key) {
		$("d-limit").dataset.of = view.key;
		$("d-limit-n").value = d ? d.limit || "" : "";
		$("d-limit-said").textContent = "";
	}
	if (s.gone) {
		set($("d-title"), "Not there any more");
		for (const id of ["d-summary", "d-note", "d-holders-head", "d-waiters-head", "d-holders-more", "d-waiters-more"]) set($(id), "");
		$("d-holders").replaceChildren();
		$("d-waiters").replaceChildren();
		$("d-chart").hidden = true;
		return;
	}
	set($("d-title"), `${d.family} / ${keyName(d)}`);
	set($("d-summary"), summary(d));
	set($("d-note"), detailNote(d));
	$("d-chart").hidden = d.kind === "guard";
	const past = d.past.map((p) => p ?? []);
	draw($("d-chart").querySelector("svg"), past, d.kind === "semaphore" ? d.limit : 0, 360, 90);
	set($("d-span"), `last ${duration(Math.max(2000, past[0].length * 2000))}`);
	set($("d-holders-head"), d.kind === "cache" && !d.scope ? `Loads ${d.holders.length || ""}` : d.kind === "guard" ? "" : `Holders ${count.format(d.holders.length + d.more[0]) }`);
	set($("d-waiters-head"), d.waiters.length ? `Waiters ${count.format(d.waiters.length + d.more[1])}` : "");
	const revocable = s.changes && d.kind !== "guard" && d.scope !== "loads";
	entries($("d-holders"), d.holders, "held for", true, revocable);
	entries($("d-waiters"), d.waiters, "waiting", false, revocable && d.kind !== "cache");
	set($("d-holders-more"), d.more[0] > 0 ? `and ${count.format(d.more[0])} more` : "");
	set($("d-waiters-more"), d.more[1] > 0 ? `and ${count.format(d.more[1])} more` : "");
}

function summary(d) {
	if (d.error) return "";
	if (d.kind === "guard") return `Refuses writes with a token below ${d.token ?? 0}.`;
	const all = [];
	if (d.kind === "cache" && !d.scope) all.push(d.inUse ? "is being loaded" : d.cached ? (d.cached.notFound ? 'remembers "not found"' : "is cached") : "is not cached");
	else if (d.scope === "total") all.push(d.total ? `${count.format(d.inUse)} of ${count.format(d.total)} in use` : `${count.format(d.inUse)} in use`);
	else all.push(d.limit ? `${count.format(d.inUse)} of ${count.format(d.limit)} in use` : `${count.format(d.inUse)} in use`);
	if (d.waiting) all.push(`${count.format(d.waiting)} waiting`);
	return all.join(", ");
}

function detailNote(d) {
	const all = [];
	if (d.holders.some((h) => h.overlong)) all.push("A lease has been renewed for more than ten times its TTL: its holder may hang.");
	if (d.holders.some((h) => h.keeps)) all.push("A process keeps leases that nobody uses (KeepFor): those marked may be idle.");
	if (d.usualHoldMs && d.inUse) all.push(`Usually held for ${duration(d.usualHoldMs)} at most.`);
	if (d.storedLimit) all.push(d.configuredLimit ? `The limit was set by hand; configured ${count.format(d.configuredLimit)}.` : "The limit was set by hand.");
	if (d.cached) all.push(`${bytes(d.cached.bytes)}, ${d.cached.freshForMs > 0 ? "fresh for " + duration(d.cached.freshForMs) : "stale"}, kept for ${duration(d.cached.keptForMs)}.`);
	if (d.near) all.push(`In the memory of ${count.format(d.near)} ${d.near === 1 ? "handle" : "handles"}.`);
	if (d.token && d.kind === "mutex") all.push(`Last token ${d.token}.`);
	if (d.schema) all.push(`Schema ${d.schema}.`);
	if (d.failedForMs) all.push(`A failure is remembered for ${duration(d.failedForMs)}.`);
	if (d.error) all.push(d.error);
	return all.join(" ");
}

function entries(table, all, since, holders, revocable) {
	const tenants = all.some((e) => e.tenant), labels = all.some((e) => e.label), permits = all.some((e) => e.permits > 1);
	const heads = [holders ? "Lease" : "Place", ...(tenants ? ["Tenant"] : []), ...(labels ? ["Where"] : []), ...(permits ? ["Permits"] : []), since, ...(holders ? ["ends in"] : []), ...(revocable ? [""] : [])];
	const text = (e, i) => [
		holders ? e.id + (e.invalidated ? " (invalidated)" : e.keeps ? " (may be idle)" : "") : `${i + 1}. ${e.id}`,
		...(tenants ? [e.tenant] : []), ...(labels ? [e.label] : []), ...(permits ? [count.format(e.permits)] : []),
		holders ? held(e.heldForMs, e.overlong) || duration(0) : duration(e.waitingForMs ?? 0), ...(holders ? [duration(e.expiresInMs ?? 0)] : []),
	];
	if (all.length === 0) {
		table.replaceChildren();
		return;
	}
	const head = heads.join("|");
	if (table.dataset.head !== head || !table.tBodies.length) {
		table.dataset.head = head;
		table.replaceChildren(el("thead", null, el("tr", null, ...heads.map((h) => el("th", {scope: "col"}, h)))), el("tbody"));
	}
	const seen = new Map();
	keep(table.tBodies[0], all.map((e, i) => {
		const n = (seen.get(e.id) ?? 0) + 1;
		seen.set(e.id, n);
		return {id: e.id + "/" + n, lease: e.id, cells: text(e, i)};
	}), (x) => x.id, (x) => {
		const tr = el("tr", null, ...x.cells.map(() => el("td")));
		if (revocable) {
			const b = el("button", {type: "button", class: "revoke", "aria-label": `Revoke ${x.lease}`}, "Revoke…");
			b.addEventListener("click", () => revoke(x.lease, holders));
			tr.append(el("td", null, b));
		}
		return tr;
	}, (tr, x) => x.cells.forEach((t, i) => set(tr.cells[i], t)));
}

// sure asks before a change, and sends it where the answer is yes.
function sure({what, means, yes, reason, said, path, body, done}) {
	$("sure-what").textContent = what;
	$("sure-means").textContent = means;
	$("sure-yes").textContent = yes;
	$("sure-why").hidden = !reason;
	$("sure-reason").required = reason;
	$("sure-reason").value = "";
	const dialog = $("sure");
	dialog.returnValue = "no";
	dialog.onclose = async () => {
		if (dialog.returnValue !== "yes") return;
		if (reason) body.reason = $("sure-reason").value.trim();
		said.textContent = "asking …";
		try {
			const r = await fetch(path, {method: "POST", body: new URLSearchParams(body)});
			said.textContent = r.ok ? done : await r.text();
		} catch {
			said.textContent = "No answer came: it may or may not have been done.";
		}
	};
	dialog.showModal();
}

$("d-limit").addEventListener("submit", (e) => {
	e.preventDefault();
	const d = last?.detail;
	if (!d || d.id !== view.key) return;
	const n = $("d-limit-n").valueAsNumber;
	const name = d.scope === "total" ? `the total of ${d.family}` : `the limit of ${d.family} / ${d.key}`;
	sure({
		what: n > 0 ? `Set ${name} to ${count.format(n)}?` : `Let ${name} be what each process is configured with?`,
		means: n > 0 && n < d.inUse ? `${count.format(d.inUse)} are in use: nothing is taken away, and nothing granted until fewer than ${count.format(n)} are.` : "It holds for all processes at once.",
		yes: "Set it", reason: false, said: $("d-limit-said"), path: "limit", body: {key: d.id, limit: n}, done: "It is set.",
	});
});

// Enter in the reason means yes: the first button of a form would be Cancel.
$("sure-reason").addEventListener("keydown", (e) => {
	if (e.key !== "Enter") return;
	e.preventDefault();
	$("sure-yes").click();
});

function revoke(id, holder) {
	const d = last?.detail;
	if (!d || d.id !== view.key) return;
	const thing = !holder ? "the place" : d.kind === "mutex" ? "the lock" : d.kind === "cache" ? "the load" : "the lease";
	sure({
		what: `Revoke ${thing} ${id} of ${d.family} / ${keyName(d)}?`,
		means: holder
			? "It goes to the next waiter at once. Its holder is told, and may work on for a while: make sure that it is dead, or that it stops."
			: "Its caller gets an error. Nothing was running for it.",
		yes: "Revoke it", reason: true, said: $("d-revoke-said"), path: "revoke", body: {key: d.id, id}, done: `${id} is revoked.`,
	});
}

// Searching waits for a pause in typing.
let typing = 0;
$("search").addEventListener("input", () => {
	clearTimeout(typing);
	typing = setTimeout(() => go({q: $("search").value.trim(), rows: 50}), 150);
});
$("find").addEventListener("submit", (e) => {
	e.preventDefault();
	clearTimeout(typing);
	go({q: $("search").value.trim(), rows: 50});
	$("rows").querySelector(".open")?.focus();
});
$("kinds").addEventListener("click", (e) => {
	if (e.target.dataset.kind !== undefined) go({kind: e.target.dataset.kind, family: "", rows: 50});
});
$("sort").addEventListener("change", () => go({sort: $("sort").value}));
$("idle").addEventListener("change", () => go({idle: $("idle").checked}));
$("family-off").addEventListener("click", () => go({family: "", kind: ""}));
$("more").addEventListener("click", () => go({rows: Math.min(500, view.rows * 2)}));
$("d-close").addEventListener("click", close);
addEventListener("hashchange", () => {
	view = fromAddress();
	watch();
});
document.addEventListener("keydown", (e) => {
	if (e.ctrlKey || e.metaKey || e.altKey || $("sure").open) return;
	const typing = e.target.matches?.("input[type=search], input[type=number], select");
	if (e.key === "Escape") {
		if (e.target === $("search") && $("search").value) {
			$("search").value = "";
			go({q: ""});
		} else if (view.key) close();
		else e.target.blur?.();
		e.preventDefault();
	} else if (e.key === "/" && !typing) {
		$("search").focus();
		$("search").select();
		e.preventDefault();
	} else if ((e.key === "ArrowDown" || e.key === "ArrowUp" || ((e.key === "j" || e.key === "k") && !typing)) && !e.target.matches?.("select, input[type=number]")) {
		move(e.key === "ArrowDown" || e.key === "j" ? 1 : -1);
		e.preventDefault();
	}
});

// move puts the focus on the next row; where details are open it shows those.
function move(by) {
	const all = [...$("rows").querySelectorAll(".open")];
	if (all.length === 0) return;
	let i = all.indexOf(document.activeElement);
	if (i < 0 && view.key) i = all.findIndex((b) => b.closest("tr").dataset.id === view.key);
	const next = all[Math.min(all.length - 1, Math.max(0, i + by))];
	next.focus();
	next.scrollIntoView({block: "nearest"});
	if (view.key) go({key: next.closest("tr").dataset.id});
}

$("search").value = view.q;
watch();
