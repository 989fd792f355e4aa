// SPDX-License-Identifier: Apache-2.0
// What PyTorch's pool would have reserved under other settings of its allocator, as a line beside what it did.
import { ask, isReport } from "./data.js";
import { bytes, signed } from "./format.js";
import { button, drawSoon, make, page, pool, state } from "./page.js";

const WIDTH = 2400;
let played = null, of = null, shown = null, asking = false; // the answer, whose it is, and which of its settings has a line

const key = () => `${state.process}/${state.pool}`;
const answer = () => of === key() ? played : null;

// "expandable_segments:True: 7.90 GiB (\u22121.40 GiB)": what a setting would reserve at the peak, and the difference from the run.
export function tellSetting(setting, own) {
  const change = setting.reserved_peak - own;
  return `${setting.set || "(default)"}: ${bytes(setting.reserved_peak)}${change === 0 ? "" : ` (${signed(change)})`}`;
}

async function play() {
  const wanted = key(), { run } = page;
  asking = true;
  drawSoon(true);
  const next = await ask("whatif", { process: state.process, pool: pool().index, from: run.from_ns, to: run.to_ns, width: WIDTH });
  asking = false;
  [played, of, shown] = [next, wanted, next.settings === undefined ? null : 0];
  drawSoon(true);
}

// The line of the chosen setting, as memory over time has its lines; null: there is none.
export function whatIfSeries() {
  const setting = answer()?.settings?.[shown];
  return setting === undefined ? null : { from_ns: page.run.from_ns, to_ns: page.run.to_ns, width: setting.reserved.length, whatif: setting.reserved, name: setting.set || "(default)" };
}

export function whatIfTools() {
  if (isReport || pool().pool !== "PTA" || pool().vendor !== "cuda" || !pool().figures.includes("reserved") || !page.run.complete || page.run.live) return [];
  const known = answer();
  if (known === null) return [button(asking ? "what if ..." : "what if", false, play)];
  if (known.settings === undefined) return [make("span", "", known.refusal ?? known.error)];
  const own = known.settings.find(one => one.set === known.set)?.reserved_peak ?? 0;
  const choice = make("select", "", Object.assign(make("option", "", "what if: none"), { value: "" }),
    ...known.settings.map((one, i) => Object.assign(make("option", "", tellSetting(one, own)), { value: i, selected: i === shown })));
  choice.id = "whatif";
  choice.setAttribute("aria-label", "settings of the allocator");
  choice.addEventListener("change", () => { shown = choice.value === "" ? null : Number(choice.value); drawSoon(true); });
  return [choice];
}
