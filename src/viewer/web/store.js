// SPDX-License-Identifier: Apache-2.0
// A run of a store: all ranks over time, the worst on top, dark is much; one of them opens the page of its trace.
// Names of programs and hosts are only ever set as text.
import { bytes, fromHash, runTitle, span, ticks, toHash } from "./format.js";
import { placeName } from "./places.js";
import { ask } from "./data.js";
import { begin, css, fitted, forgetColours, TOP } from "./draw.js";

const $ = id => document.getElementById(id);
const FIGURES = 84, TALL = 18, THIN = 4, AGAIN_MS = 5000;
const ORDERS = { worst: "worst first", rank: "by rank", host: "by host" };

// Room for the names of ranks.
const namesIn = width => width < 500 ? 100 : 150;

// "ranks 7, 32 hold 17 % more": what a group of ranks has in common.
function tellGroup(group) {
  const one = group.ranks.length === 1, s = one ? "s" : "", share = Math.round(Math.abs(group.share) * 100);
  const names = `${one ? "rank" : "ranks"} ${group.ranks.slice(0, 8).join(", ")}${group.ranks.length > 8 ? ` and ${group.ranks.length - 8} more` : ""}`;
  const does = { leak: `leak${s} ${bytes(group.bytes_per_step)} per step`, growth: `grow${s} ${bytes(group.bytes_per_step)} per step`, more: `hold${s} ${share} % more`, less: `hold${s} ${share} % less`,
    different: `use${s} other call sites` };
  return `${names} ${does[group.why] ?? group.why}`;
}

const state = { pool: null, order: "worst", rank: null };
let fleet = null, lines = null, list = [], marked = new Set(), each = TALL;

function make(tag, className, ...inside) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside.map(one => one ?? ""));
  return element;
}

function button(text, pressed, act, className) {
  const element = make("button", className, text);
  element.type = "button";
  element.setAttribute("aria-pressed", String(pressed));
  element.addEventListener("click", act);
  return element;
}

function note(text) {
  $("note").textContent = text;
}

// ---- what is known ----

function mainPool() {
  return Math.max(0, fleet.pools.findIndex(one => one.main));
}

function poolOf(rank) {
  return rank.pools.find(one => one.pool === fleet.pools[state.pool].pool);
}

function chosen() {
  return fleet.ranks.find(one => one.rank === state.rank);
}

// The answer has the worst first; a run of one line for each rank in the order that was asked for.
function arrange() {
  const known = new Map((lines?.ranks ?? []).map(one => [one.rank, one]));
  const sorted = [...fleet.ranks];
  if (state.order !== "worst") sorted.sort((a, b) => (state.order === "host" ? a.host.localeCompare(b.host, "en", { numeric: true }) : 0) || a.rank - b.rank);
  list = sorted.map(rank => ({ rank, line: known.get(rank.rank), held: poolOf(rank)?.peak_bytes ?? 0 }));
  marked = new Set(fleet.outliers.filter(one => one.pool === fleet.pools[state.pool].pool || one.why === "leak").flatMap(one => one.ranks));
}

function change(part) {
  Object.assign(state, part);
  history.replaceState(null, "", toHash({ pool: state.pool === mainPool() ? null : state.pool, order: state.order === "worst" ? null : state.order, rank: state.rank }));
  arrange();
  draw();
  drawPanels();
}

// ---- the picture ----

function badness(rank) {
  return { oom: "out of memory", leak: "leak", suspect: "suspect" }[rank.verdict] ?? "";
}

function draw() {
  const canvas = $("heat"), room = $("scroll").clientHeight;
  each = Math.max(THIN, Math.min(TALL, Math.floor((room - TOP - 8) / (list.length || 1))));
  canvas.style.height = `${Math.max(room, TOP + 8 + each * list.length)}px`;
  const { pen, width } = begin(canvas), names = namesIn(width), wide = Math.max(1, width - names - FIGURES - 16);
  const most = Math.max(1, ...list.map(one => one.held)), length = lines === null ? 1 : lines.to_ns - lines.from_ns;
  const strong = css("--strong"), text = css("--text"), bad = css("--bad"), band = css("--band"), pale = css("--pale");
  pen.fillStyle = pale;
  pen.textAlign = "center";
  for (const at of ticks(length, Math.max(2, wide / 120)))
    if (at / length * wide < wide - 20) pen.fillText(at === 0 ? "start" : span(at), names + Math.max(12, at / length * wide), TOP / 2 + 2);
  pen.textAlign = "left";
  let labelled = -TALL; // where the last name stands: thin rows share the room
  list.forEach(({ rank, line, held }, row) => {
    const y = TOP + 4 + row * each, tall = Math.max(1, each - (each > 6 ? 2 : each > 4 ? 1 : 0));
    pen.fillStyle = band;
    pen.fillRect(names, y, wide, tall);
    pen.fillStyle = marked.has(rank.rank) ? bad : strong;
    (line?.values ?? []).forEach((value, i, all) => {
      if (!value) return;
      pen.globalAlpha = 0.08 + 0.92 * Math.min(1, value / most);
      const from = Math.round(wide * i / all.length), to = Math.round(wide * (i + 1) / all.length);
      pen.fillRect(names + from, y, to - from, tall);
    });
    pen.globalAlpha = 1;
    if (rank.rank === state.rank) {
      pen.strokeStyle = text;
      pen.strokeRect(names - 0.5, y - 0.5, wide + 1, tall + 1);
    }
    if (y - labelled < 11) return;
    labelled = y;
    pen.fillStyle = marked.has(rank.rank) || badness(rank) ? bad : text;
    pen.fillText(fitted(pen, `rank ${rank.rank}  ${badness(rank) || rank.host}`, names - 16), 8, y + tall / 2);
    pen.fillText(bytes(held), names + wide + 8, y + tall / 2);
  });
  canvas.dataset.ranks = String(list.length);
  if (lines !== null && performance.getEntriesByName("picture").length === 0) performance.mark("picture");
}

function rowAt(event) {
  const box = $("heat").getBoundingClientRect();
  return list[Math.floor((event.clientY - box.top - TOP - 4) / each)];
}

function tip(event) {
  const row = rowAt(event), box = $("heat").getBoundingClientRect(), names = namesIn(box.width), wide = Math.max(1, box.width - names - FIGURES - 16);
  const part = (event.clientX - box.left - names) / wide, value = row?.line?.values[Math.floor(part * row.line.values.length)];
  $("tip").hidden = row === undefined;
  if (row === undefined) return;
  $("tip").textContent = `rank ${row.rank.rank} on ${row.rank.host}, ${badness(row.rank) || "peak"} ${bytes(row.held)}` +
    (part >= 0 && part < 1 && value !== undefined ? `\n${bytes(value)} after ${span(part * (lines.to_ns - lines.from_ns))}` : "");
  $("tip").style.left = `${Math.min(event.clientX + 14, innerWidth - 320)}px`;
  $("tip").style.top = `${Math.min(event.clientY + 14, innerHeight - 60)}px`;
}

// ---- the panels ----

function openTrace() {
  const line = list.find(one => one.rank.rank === state.rank)?.line;
  if (line?.process !== undefined) location.href = `/rank${location.search}#process=${line.process}`;
}

function traceOf(rank) {
  const line = list.find(one => one.rank === rank)?.line;
  if (line?.process !== undefined) {
    const opens = make("button", "", "Open its trace");
    opens.id = "open";
    opens.addEventListener("click", openTrace);
    return [make("section", "", opens, make("span", "pale path", rank.trace))];
  }
  return [make("p", "pale path", rank.trace ? `Its trace is on ${rank.host} at ${rank.trace}; copy it here, or run msmemscope view there.` :
    "Its trace was not kept.")];
}

function drawRank() {
  const rank = chosen();
  if (rank === undefined) {
    $("right").replaceChildren(make("h2", "", "Rank"), make("p", "pale", "Click a rank to see its memory and its trace."));
    return;
  }
  const groups = fleet.outliers.filter(one => one.ranks.includes(rank.rank));
  const told = groups.flatMap(one => one.places.map(place => make("div", "row", make("i", ""), Object.assign(make("span", "", placeName(place.place)), { title: place.place }),
    one.why === "leak" ? `${bytes(place.delta_bytes)}/step` : `${place.delta_bytes > 0 ? "+" : ""}${bytes(place.delta_bytes)}`)));
  $("right").replaceChildren(make("h2", "", `Rank ${rank.rank}`), make("div", "big", bytes(poolOf(rank)?.peak_bytes ?? 0)),
    make("span", "pale", `peak of ${fleet.pools[state.pool].pool} on ${rank.host}, device ${rank.device || "none"}`),
    make("span", "pale", `${bytes(poolOf(rank)?.end_bytes ?? 0)} ${rank.outcome === "running" ? "now" : "at the end"}, ${rank.steps} steps, ${span(rank.seconds * 1e9)}`),
    make("div", badness(rank) ? "" : "pale", `${badness(rank) || (rank.verdict === "ok" ? "no leak was found" : "leaks were not judged")}${rank.outcome === "ended" ? "" : `, ${rank.outcome}`}`),
    ...traceOf(rank), ...(told.length > 0 ? [make("h2", "", "Why it stands out"), make("section", "list place", ...told)] : []));
}

// How many ranks ran out of memory, leak or may; that none does.
function verdictChips() {
  const count = word => fleet.ranks.filter(one => one.verdict === word).length;
  const chips = [["oom", "OUT OF MEMORY", "bad"], ["leak", "LEAK", "bad"], ["suspect", "suspect", "warn"]].filter(([word]) => count(word) > 0)
    .map(([word, text, level]) => make("span", `chip plain ${level}`, `${text} in ${count(word)} of ${fleet.rank_count} ranks`));
  return chips.length === 0 && fleet.ranks.every(one => one.verdict === "ok") ? [make("span", "chip good", "no leak was found")] : chips;
}

// 2026-11-16 18:02, in the reader's own time.
function dateOf(when) {
  const two = number => String(number).padStart(2, "0");
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} ${two(when.getHours())}:${two(when.getMinutes())}`;
}

function drawPanels() {
  const hosts = fleet.hosts.length, when = new Date(fleet.start_ns / 1e6), going = fleet.ranks.filter(one => one.outcome === "running").length;
  $("title").title = fleet.run;
  $("title").textContent = `${runTitle(fleet.run)}: ${fleet.rank_count} rank${fleet.rank_count === 1 ? "" : "s"} on ${hosts} host${hosts === 1 ? "" : "s"}`;
  document.title = `${runTitle(fleet.run)} - msmemscope`;
  $("chips").replaceChildren(...verdictChips(), ...[dateOf(when), fleet.commit && `commit ${fleet.commit.slice(0, 12)}`, fleet.job, going ? `${going} still running` : ""].filter(Boolean)
    .map(text => make("span", "chip plain short", text)));
  $("pools").replaceChildren(...fleet.pools.map((one, i) => {
    const entry = button("", i === state.pool, async () => { state.pool = i; await fetchLines(); change({}); }, "entry");
    entry.append(one.pool, make("small", "", `median ${bytes(one.peak_bytes.median)}, most ${bytes(one.peak_bytes.most)}`));
    return entry;
  }));
  const groups = fleet.outliers.map(one => {
    const entry = button("", false, async () => {
      const pool = fleet.pools.findIndex(other => other.pool === one.pool);
      if (pool >= 0 && pool !== state.pool) { state.pool = pool; await fetchLines(); }
      change({ rank: one.ranks[0], order: "worst" });
      showRow();
    }, `entry ${one.why === "leak" ? "bad" : "warn"}`);
    entry.append(tellGroup(one),
      make("small", "", placeName(one.places[0]?.place ?? "")));
    return entry;
  });
  if (groups.length === 0) groups.push(make("p", "pale", fleet.too_few_ranks ? "Too few ranks to compare." : "None: peaks, growth and call sites of all ranks were compared."));
  $("groups").replaceChildren(...groups);
  $("tools").replaceChildren(...Object.entries(ORDERS).map(([key, text]) => button(text, state.order === key, () => change({ order: key }))),
    make("span", "", `full colour: up to ${bytes(Math.max(0, ...list.map(one => one.held)))}; red: stands out`));
  drawRank();
}

function showRow() {
  const row = list.findIndex(one => one.rank.rank === state.rank), y = TOP + row * each, scroll = $("scroll");
  if (row >= 0 && (y < scroll.scrollTop || y > scroll.scrollTop + scroll.clientHeight - each)) scroll.scrollTop = y - scroll.clientHeight / 2;
}

function move(by) {
  const row = list.findIndex(one => one.rank.rank === state.rank);
  change({ rank: list[Math.min(list.length - 1, Math.max(0, row + by))]?.rank.rank ?? null });
  showRow();
}

// ---- the begin ----

async function fetchLines() {
  const answer = await ask("timeline", { pool: state.pool, now: 1 });
  if (answer.error) note(answer.error); else lines = answer;
}

async function load() {
  const answer = await ask("fleet", { now: 1 });
  if (answer.error) { note(answer.error); return; }
  fleet = answer;
  note("");
  if (fleet.pools.length === 0) { note("No recorded memory in any of its processes."); return; }
  if (!(state.pool >= 0 && state.pool < fleet.pools.length) || state.pool === null) state.pool = mainPool();
  await fetchLines();
  change({});
}

async function follow() {
  while (fleet === null || fleet.ranks.some(one => one.outcome === "running")) {
    await new Promise(resolve => setTimeout(resolve, AGAIN_MS));
    await load();
  }
}

async function main() {
  const hash = fromHash(location.hash);
  if (hash.pool !== undefined) state.pool = Number(hash.pool);
  if (hash.order in ORDERS) state.order = hash.order;
  if (hash.rank !== undefined && Number.isFinite(Number(hash.rank))) state.rank = Number(hash.rank);
  $("heat").addEventListener("click", event => { const row = rowAt(event); if (row) change({ rank: row.rank.rank }); });
  $("heat").addEventListener("dblclick", openTrace);
  $("heat").addEventListener("mousemove", tip);
  $("heat").addEventListener("mouseleave", () => { $("tip").hidden = true; });
  $("heat").addEventListener("keydown", event => {
    const act = { ArrowDown: () => move(1), ArrowUp: () => move(-1), Enter: openTrace }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  addEventListener("resize", () => fleet !== null && draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetColours(); if (fleet !== null) draw(); });
  await load();
  await follow();
}

main();
