// SPDX-License-Identifier: Apache-2.0
// What was found, and where it leads: the panel on the left and the chips on top.
import { ask } from "./data.js";
import { bytes } from "./format.js";
import { isFollowed, liveChip } from "./live.js";
import { $, button, change, make, page, pool, seeView, show, state } from "./page.js";
import { placeName } from "./places.js";

const WASTES = 5; // places that the list names, if they cost more than a hundredth of the peak
// A finding as the page shows it, by how bad it is.
const LEVELS = { error: "bad", warning: "warn" };
let found = -1, waste = null, wasteOf = null;

const capital = text => text[0].toUpperCase() + text.slice(1);

// Each finding: how bad it is, what it says, and where it leads.
function findings() {
  const { run } = page, list = [];
  for (const oom of run.ooms ?? []) {
    list.push({ kind: "oom", level: LEVELS[oom.severity] ?? "", title: oom.headline, text: [oom.text && `${capital(oom.text)}.`, oom.advice && `Try: ${oom.advice}.`].filter(Boolean).join("\n"),
      go: () => { state.pool = run.pools.some(one => one.index === oom.pool) ? oom.pool : state.pool; showAround(oom.time_ns); } });
  }
  for (const one of run.forecasts ?? []) list.push({ kind: "forecast", level: LEVELS[one.severity] ?? "", title: one.title, text: `${one.sentence}.`, go: () => change({ tab: "timeline" }) });
  for (const leak of run.leaks) {
    const isLeak = leak.verdict === "leak";
    list.push({ kind: isLeak ? "leak" : "suspect", level: LEVELS[leak.severity] ?? "", title: `${isLeak ? "Leak" : "Suspect"}: ${placeName(leak.place)}`, text: [leak.sentence, leak.keeper?.trim()].filter(Boolean).join("\n"),
      go: () => { state.pool = leak.pool; change({ tab: "flame", of: isLeak ? "leaks" : "end", block: leak.block === undefined ? null : String(leak.block) }); } });
  }
  for (const one of run.overwritten ?? []) {
    const step = one.step > 0 ? run.steps.findLast(([number]) => number <= one.step) : undefined;
    list.push({ kind: "watch", level: "bad", title: `Overwritten: ${one.name}`, text: one.text,
      go: () => { if (run.pools.length === 0) return; if (step) { showAround(step[1]); } else { $("search").value = one.name; change({ tab: "table", list: "events", search: one.name }); } } });
  }
  for (const one of run.host_findings ?? []) list.push({ kind: "host", level: LEVELS[one.severity] ?? "", title: one.title, text: one.text, go: () => {} });
  for (const place of (waste ?? []).flatMap(one => one.places.filter(place => place.saved_bytes * 100 > one.peak_bytes)).slice(0, WASTES)) {
    list.push({ kind: "waste", level: "warn", title: `Wasted ${bytes(place.saved_bytes)}: ${placeName(place.text)}`, text: `${place.inefficient_type.replaceAll("_", " ")}; ${place.blocks.toLocaleString("en")} blocks. Without it the peak is ${bytes(place.saved_bytes)} lower.`,
      go: () => change({ tab: "blocks", block: String(place.first_allocation_id) }) });
  }
  for (const one of run.sections ?? []) {
    list.push({ kind: "section", level: "", title: capital(one.title), text: one.text, go: () => {} });
  }
  return list;
}

// What was not used well: asked for once the run is read.
export async function fetchWaste() {
  const of = state.process;
  if (!page.run.complete || wasteOf === of) return;
  wasteOf = of;
  const answer = await ask("waste", { process: of });
  waste = answer.inefficient ?? null;
  if (of === state.process) drawLeft();
}

function nothingFound() {
  const { run } = page;
  if (!run.complete) return isFollowed(run) ? (run.judged ? "No findings so far." : "Too early to judge.") : "Findings appear once the run has been read.";
  if (run.asked === false) return "Leaks were not judged: --analysis does not include them.";
  return run.verdict === "ok" ? "No leak was found." : run.judged ? "No call site leaks, but not all memory is steady or judged." : "Leaks are not judged: no steps.";
}

export function drawLeft() {
  const { run } = page, list = findings();
  $("pools").replaceChildren(...run.pools.map(one => {
    const entry = button("", one.index === pool().index, () => page.openPool(one.index), "entry");
    entry.append(capital(one.name), make("small", "", `peak ${bytes(one.peak_bytes)}, ${one.blocks.toLocaleString("en")} block${one.blocks === 1 ? "" : "s"}`));
    return entry;
  }));
  const entries = list.map((one, i) => {
    const entry = button("", found === i, () => goTo(i), `entry ${one.level}`);
    entry.append(one.title, make("small", "", one.text));
    return entry;
  });
  if (run.more_leaks) entries.push(make("span", "pale", `${run.more_leaks.toLocaleString("en")} more call sites: msmemscope info --all`));
  if (entries.length === 0) entries.push(make("span", "pale", nothingFound()));
  $("findings").replaceChildren(...entries);
}

// [finding, its number] of the leaks that have a chip: the first two, and the second only if it is not dust beside
// the first. What does not grow by a byte per step has none.
export function chipLeaks(leaks) {
  const list = leaks.map((leak, i) => [leak, i]).filter(([leak]) => leak.bytes_per_step >= 1);
  return list.slice(0, 2).filter(([leak]) => leak.bytes_per_step * 100 >= list[0][0].bytes_per_step);
}

export function drawChips() {
  const { run } = page, list = findings();
  const chips = [], chip = (text, kind, level) => chips.push(button(text, false, () => goTo(list.findIndex(one => one.kind === kind)), `chip ${level}`));
  const oom = run.ooms?.[0], overwritten = run.overwritten?.[0];
  if (oom) chip(`OUT OF MEMORY${oom.step ? ` in step ${oom.step}` : ""}: ${oom.cause}`, "oom", LEVELS[oom.severity] ?? "");
  const forecast = run.forecasts?.[0];
  if (forecast) chip(`FULL at step ${forecast.steps}`, "forecast", LEVELS[forecast.severity] ?? "");
  for (const [leak, i] of chipLeaks(run.leaks)) {
    chips.push(button(`${leak.verdict === "leak" ? "LEAK" : "suspect"} +${bytes(leak.bytes_per_step)}/step  ${placeName(leak.place)}`,
      false, () => goTo((run.ooms ?? []).length + (run.forecasts ?? []).length + i), `chip ${LEVELS[leak.severity] ?? ""}`));
  }
  const host = run.host_findings?.[0];
  if (host) chip(host.title, "host", LEVELS[host.severity] ?? "");
  if (overwritten) {
    chip(`OVERWRITTEN ${overwritten.name}`, "watch", "bad");
    if (chips.length > 1 && chips[0].classList.contains("warn")) chips.unshift(chips.pop()); // worse than a suspect
  }
  if (chips.length === 0 && run.verdict === "ok") chips.push(make("span", "chip good", "no leak was found"));
  const { peak_bytes: peak, total_bytes: total, peak_ns: at } = pool();
  chips.push(button(`peak ${bytes(peak)}${total ? ` of ${bytes(total)}` : ""}`, false, () => change({ at, and: null }), "chip short"));
  if (liveChip(run)) chips.unshift(make("span", "chip good short", liveChip(run)));
  if (run.dry) {
    const dry = make("span", "chip warn short", `dry run on ${run.dry}`);
    dry.title = "No device was used. Operator workspaces and HCCL buffers are not counted.";
    chips.unshift(dry);
  }
  $("chips").replaceChildren(...chips);
  const words = (run.command || run.input).split(" "), shown = words.slice(0, 4).map(word => word.split("/").pop());
  while (shown.length > 1 && shown.length < words.length && shown.at(-1).startsWith("-")) shown.pop(); // its value is not there
  $("title").textContent = shown.join(" ");
  $("title").title = `${run.command || run.input}${run.host ? ` on ${run.host}` : ""}`;
  document.title = `${$("title").textContent} - msmemscope`;
}

export function showAround(time) {
  const length = (page.run.to_ns - page.run.from_ns) / 8;
  Object.assign(state, { tab: "timeline", at: time, and: null });
  show(time - length / 2, time + length / 2);
}

export function goTo(index) {
  found = index;
  findings()[index]?.go();
  seeView();
  drawLeft();
}

// The next finding, or with -1 the previous one.
export function goToNext(by) {
  const count = findings().length;
  if (count > 0) goTo(found < 0 ? (by > 0 ? 0 : count - 1) : (found + by + count) % count);
}
