// SPDX-License-Identifier: Apache-2.0
// Blocks as a table: the largest of those that live in the time shown, or at A, and have the text that is searched for.
import { ask } from "./data.js";
import { bytes, ownerName, span } from "./format.js";
import { $, change, make, page, pool, state } from "./page.js";

async function fillTable() {
  const answer = await ask("table", { process: state.process, pool: pool().index, from: Math.floor(state.from), to: Math.ceil(state.to),
    at: state.at ? Math.round(state.at) : undefined, text: state.search || undefined, offset: 0, count: 300, of: state.search ? "?" : "" });
  if (state.tab !== "table") return;
  if (answer.error) { $("table").replaceChildren(make("p", "pale", answer.error)); return; }
  const head = make("tr", "", ...["size", "allocated", "freed", "step", "owner", "place"].map((name, i) => make("th", i < 4 ? "number" : "", name)));
  const body = make("tbody", "", ...answer.blocks.map(block => {
    const row = make("tr", "", ...[[bytes(block.bytes), "number"], [span(block.start_ns - page.run.from_ns), "number"],
      [block.end_ns === null ? "never" : span(block.end_ns - page.run.from_ns), "number"], [block.step || "", "number"], [ownerName(block.owner), "place"], [block.place, "place"]]
      .map(([text, className]) => make("td", className, String(text))));
    row.addEventListener("click", () => change({ block: String(block.id) }));
    return row;
  }));
  const text = `${answer.found.toLocaleString("en")} blocks, ${bytes(answer.bytes)}${state.at ? ", alive at A" : " in the time shown"}` +
    `${answer.found > answer.blocks.length ? `; the largest ${answer.blocks.length} are listed` : ""}`;
  $("table").replaceChildren(make("p", "pale", text), make("table", "", make("thead", "", head), body));
}

export const tableView = { key: "table", title: "Table", element: "table", fetch: fillTable };
