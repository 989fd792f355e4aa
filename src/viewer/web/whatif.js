// SPDX-License-Identifier: Apache-2.0
// What the pool would have done otherwise, as a line beside what it did: reserved under other settings of its allocator ("whatif"), or held after a
// change of the program ("advise").
import { ask, isReport } from "./data.js";
import { bytes, signed } from "./format.js";
import { button, drawSoon, make, page, pool, state } from "./page.js";

const WIDTH = 2400;

// "expandable_segments:True: 7.90 GiB (\u22121.40 GiB)": what a setting would reserve at the peak, and the difference from the run.
export function tellSetting(setting, own) {
  const change = setting.reserved_peak - own;
  return `${setting.set || "(default)"}: ${bytes(setting.reserved_peak)}${change === 0 ? "" : ` (${signed(change)})`}`;
}

// "checkpoint Block (6 of them): 6.58 MiB (\u22126.79 MiB), reserves 22.0 MiB, model.py:41"
export function tellChange(change) {
  const { reserved_low: low, reserved_high: high } = change;
  const reserved = high === undefined ? "" : `, reserves ${low === high ? "" : `${bytes(low)} to `}${bytes(high)}`;
  return `${change.what}: ${bytes(change.peak_bytes)} (${signed(-change.saved_bytes)})${reserved}${change.line ? `, ${change.line.split("/").pop()}` : ""}`;
}

// A question that is asked once for a pool, and whose answer is a choice of lines.
function askedOnce(one) {
  const key = () => `${state.process}/${state.pool}`;
  let known = null, of = null, shown = null, asking = false; // the answer, whose it is, and which of its lines is drawn
  const list = () => of === key() ? known?.[one.list] : undefined;

  async function play() {
    const wanted = key(), { run } = page;
    asking = true;
    drawSoon(true);
    const next = await ask(one.word, { process: state.process, pool: pool().index, from: run.from_ns, to: run.to_ns, width: WIDTH });
    asking = false;
    [known, of, shown] = [next, wanted, next[one.list] === undefined ? null : 0];
    drawSoon(true);
  }

  return {
    // The line that is chosen, as memory over time has its lines; null: there is none.
    series() {
      const line = list()?.[shown];
      return line === undefined ? null : { from_ns: page.run.from_ns, to_ns: page.run.to_ns, width: line[one.values].length, otherwise: line[one.values], name: one.name(line) };
    },
    tools() {
      if (page.run.live || !page.run.complete || !one.isFor(pool(), page.run)) return [];
      if (of !== key()) return [button(asking ? `${one.title} ...` : one.title, false, play)];
      if (list() === undefined) return [make("span", "", known.refusal ?? known.error)];
      const choice = make("select", "", Object.assign(make("option", "", `${one.title}: none`), { value: "" }),
        ...list().map((line, i) => Object.assign(make("option", "", one.tell(line, known)), { value: i, selected: i === shown })));
      choice.id = one.word;
      choice.setAttribute("aria-label", one.label);
      choice.addEventListener("change", () => { shown = choice.value === "" ? null : Number(choice.value); drawSoon(true); });
      return [choice];
    },
  };
}

export const whatIf = askedOnce({
  word: "whatif", title: "what if", list: "settings", values: "reserved", label: "settings of the allocator",
  name: setting => setting.set || "(default)",
  tell: (setting, { settings, set }) => tellSetting(setting, settings.find(one => one.set === set)?.reserved_peak ?? 0),
  isFor: ({ pool: kind, vendor, figures }) => !isReport && kind === "PTA" && vendor === "cuda" && figures.includes("reserved"),
});

export const advice = askedOnce({
  word: "advise", title: "advice", list: "advice", values: "used", label: "change of the program",
  name: change => change.what,
  tell: tellChange,
  isFor: ({ pool: kind }, run) => run.layers && (kind === "PTA" || kind === "HOST"),
});
