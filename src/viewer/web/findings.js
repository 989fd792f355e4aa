// SPDX-License-Identifier: Apache-2.0
// What was found, and where it leads: the panel on the left and the chips on top.
import { bytes } from "./format.js";
import { $, button, change, make, page, pool, show, state } from "./page.js";

let found = 0;

export function drawLeft() {
  const { run } = page;
  $("pools").replaceChildren(...run.pools.map(one => {
    const entry = button("", one.index === pool().index, () => page.openPool(one.index), "entry");
    entry.append(`${one.pool} on ${one.device}`, make("small", "", `peak ${bytes(one.peak_bytes)}, ${one.blocks.toLocaleString("en")} blocks`));
    return entry;
  }));
  const list = run.leaks.map((leak, i) => {
    const entry = button("", false, () => goTo(i), `entry ${leak.verdict === "leak" ? "bad" : "warn"}`);
    entry.append(`${leak.verdict === "leak" ? "Leak" : "Suspect"}: ${leak.place}`, make("small", "", leak.sentence));
    return entry;
  });
  for (const marker of run.markers.filter(one => one.kind === "oom"))
    list.push(button("Out of memory", false, () => showAround(marker.time_ns), "entry bad"));
  if (list.length === 0) list.push(make("span", "pale", run.clean ? "No leak was found." : run.judged ? "Nothing to tell." : "Leaks are not judged: no steps."));
  $("findings").replaceChildren(...list);
}

export function drawChips() {
  const { run } = page;
  // A second leak is told here only if it is not dust beside the first.
  const told = run.leaks.slice(0, 2).filter((leak, i) => i === 0 || leak.bytes_per_step * 100 >= run.leaks[0].bytes_per_step);
  const chips = told.map((leak, i) => button(`${leak.verdict === "leak" ? "LEAK" : "suspect"} +${bytes(leak.bytes_per_step)}/step  ${leak.place}`,
    false, () => goTo(i), `chip ${leak.verdict === "leak" ? "bad" : "warn"}`));
  const oom = run.markers.find(one => one.kind === "oom");
  if (oom) chips.push(button("OUT OF MEMORY", false, () => showAround(oom.time_ns), "chip bad"));
  if (chips.length === 0 && run.clean) chips.push(make("span", "chip good", "no leak was found"));
  chips.push(button(`peak ${bytes(pool().peak_bytes)}`, false, () => change({ at: pool().peak_ns, and: null }), "chip short"));
  $("chips").replaceChildren(...chips);
  $("title").textContent = `${(run.command || run.input).split(" ").slice(0, 4).map(word => word.split("/").pop()).join(" ")}`;
  document.title = `${$("title").textContent} - msmemscope`;
}

export function showAround(time) {
  const { run } = page;
  const length = (run.to_ns - run.from_ns) / 8;
  Object.assign(state, { tab: "timeline", at: time });
  show(time - length / 2, time + length / 2);
}

// A finding: its blocks in the flame graph of leaks, its place beside it.
export function goTo(index) {
  const leak = page.run.leaks[index];
  found = index;
  Object.assign(state, { pool: leak.pool, block: leak.block === undefined ? null : String(leak.block) });
  change({ tab: "flame", of: leak.verdict === "leak" ? "leaks" : "end" });
  drawLeft();
}

// The next finding, or with -1 the previous one.
export function goToNext(by) {
  const count = page.run.leaks.length;
  if (count > 0) goTo((found + by + count) % count);
}
