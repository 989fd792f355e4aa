// SPDX-License-Identifier: Apache-2.0
// Blocks or events as a table: of the time shown, or alive at A, and with what is searched for.
import { ask, isReport } from "./data.js";
import { bytes, count, parseSearch, span } from "./format.js";
import { $, button, change, make, page, pool, seeView, state } from "./page.js";
import { ownerWords, placeName } from "./places.js";

const PAGE_ROWS = 300;

function cells(values) {
  return values.map(([text, className]) => {
    const cell = make("td", className, String(text));
    if (className === "place") cell.title = String(text);
    return cell;
  });
}

function blockRow(block) {
  const row = make("tr", "", ...cells([[bytes(block.bytes), "number"], [placeName(block.place), "place"], [ownerWords(block.owner), "place"], [block.operator, "place"], [block.step || "", "number"],
    [span(block.start_ns), "number"], [block.end_ns === null ? "never" : span(block.end_ns), "number"], [block.end_ns === null ? "" : span(block.end_ns - block.start_ns), "number"]]));
  row.addEventListener("click", () => change({ block: String(block.id) }));
  if (state.block === String(block.id)) row.className = "chosen";
  return row;
}

function eventRow(event) {
  const row = make("tr", "", ...cells([[span(event.time_ns), "number"], [event.event, ""], [event.type, ""], [event.bytes === undefined ? "" : bytes(event.bytes), "number"],
    [event.thread, "number"], [event.name, "place"], [placeName(event.place ?? ""), "place"]]));
  row.addEventListener("click", () => change({ at: event.time_ns, and: null, ...(event.block === undefined ? {} : { block: String(event.block) }) }));
  return row;
}

// What the table is asked for.
function tableQuestion(offset) {
  const { text, least, most, alive, address } = parseSearch(state.search), events = state.list === "events", isPart = !events && state.at !== null;
  return { process: state.process, pool: pool().index, from: Math.floor(state.from), to: Math.ceil(state.to) + 1, at: isPart ? Math.round(state.at) : undefined,
    text: text || undefined, least: least || undefined, most: most ?? undefined, alive: alive ? 1 : undefined, address: address === null ? undefined : BigInt(address).toString(), sort: state.sort ?? undefined,
    event: events ? state.event ?? undefined : undefined, offset, count: PAGE_ROWS, of: state.search || isPart || state.sort || (events && state.event) ? "?" : "" };
}

const HEADS = {
  blocks: [["size", "number"], ["call site", ""], ["owner", ""], ["operator", ""], ["step", "number"], ["allocated", "number"], ["freed", "number"], ["lived", "number"]],
  events: [["time", "number"], ["event", ""], ["type", ""], ["size", "number"], ["thread", "number"], ["name", ""], ["call site", ""]],
};

let kinds = {}, jumps = false;

// Shows what is searched for, and chooses the first block of it.
export function jumpToFound() {
  jumps = true;
  change({ tab: "table", ...(state.list === "events" ? { list: null } : {}) });
  seeView();
}

// Whether a block of a report has what is searched for: a report carries the largest blocks, and no server looks through them.
export function hasWhat(block, { text, least, most, alive, address }, at) {
  const within = address === null || (BigInt(address) >= BigInt(block.address) && BigInt(address) < BigInt(block.address) + BigInt(Math.max(1, block.bytes)));
  const said = `${block.place} ${block.owner} ${block.operator}`.toLowerCase();
  return within && block.bytes >= least && block.bytes <= (most ?? Infinity) && (!alive || block.end_ns === null) && said.includes(text.toLowerCase()) &&
    (at === null || (block.start_ns <= at && (block.end_ns === null || block.end_ns > at)));
}

async function askTable(events, question) {
  if (!isReport || events || question.of !== "?") return ask(events ? "events" : "table", question);
  const all = await ask("table", { ...question, of: "" }), wanted = parseSearch(state.search);
  if (all.error) return all;
  const blocks = all.blocks.filter(one => hasWhat(one, wanted, state.at));
  if (state.sort === "time") blocks.sort((a, b) => a.start_ns - b.start_ns);
  return { blocks, found: blocks.length, bytes: blocks.reduce((sum, one) => sum + one.bytes, 0), among: all.blocks.length < all.found ? all.blocks.length : 0 };
}

async function fillTable(current, offset = 0) {
  const events = state.list === "events", answer = await askTable(events, tableQuestion(offset));
  if (!current()) return;
  if (answer.error) { $("table").replaceChildren(make("p", "pale", answer.error)); return; }
  kinds = answer.kinds ?? kinds;
  const rows = events ? answer.events.map(eventRow) : answer.blocks.map(blockRow), shown = offset + rows.length;
  const more = shown < answer.found && !isReport ? [button(`${Math.min(PAGE_ROWS, answer.found - shown)} more`, false, () => fillTable(current, shown), "more")] : [];
  if (offset > 0) {
    $("table").querySelector("tbody").append(...rows);
    $("table").querySelector(".more").replaceWith(...more);
    return;
  }
  const head = make("tr", "", ...HEADS[events ? "events" : "blocks"].map(([name, className]) => make("th", className, name)));
  const what = events ? `${count(answer.found, "event")} in the time shown` :
    `${count(answer.found, "block")}, ${bytes(answer.bytes)}${state.at !== null ? ", alive at A" : " in the time shown"}`;
  const part = answer.among ? `; searched among the largest ${answer.among.toLocaleString("en")}, which are in this report` : isReport && shown < answer.found ? `; ${events ? "the first" : "the largest"} ${shown.toLocaleString("en")} are in this report` : "";
  $("table").replaceChildren(make("p", "pale", `${what}${state.search ? `  that match "${state.search}"` : ""}${part}`), make("table", "", make("thead", "", head), make("tbody", "", ...rows)), ...more);
  const first = jumps && !events ? answer.blocks[0] : undefined;
  jumps = jumps && events;
  if (first !== undefined) change({ block: String(first.id) });
}

function kindTool() {
  const choice = make("select", "", Object.assign(make("option", "", "all events"), { value: "" }),
    ...Object.entries(kinds).map(([name, count]) => Object.assign(make("option", "", `${name} (${count.toLocaleString("en")})`), { value: name, selected: state.event === name })));
  choice.setAttribute("aria-label", "kind of event");
  choice.addEventListener("change", () => change({ event: choice.value || null }));
  return choice;
}

export const tableView = {
  key: "table",
  title: "Table",
  element: "table",
  fetch: current => fillTable(current),
  tools() {
    const events = state.list === "events", parts = [button("blocks", !events, () => change({ list: null })), button("events", events, () => change({ list: "events" }))];
    if (events) parts.push(kindTool());
    else parts.push(button("largest first", state.sort === null, () => change({ sort: null })), button("oldest first", state.sort === "time", () => change({ sort: "time" })));
    if (state.at !== null && !events) parts.push(button("all in the time shown", false, () => change({ at: null, and: null })));
    if (state.search) parts.push(button("clear the search", false, () => { $("search").value = ""; change({ search: "" }); }));
    return parts;
  },
};
