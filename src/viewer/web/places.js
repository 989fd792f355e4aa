// SPDX-License-Identifier: Apache-2.0
// Names of call sites, as findings have them: "train.py:9 main -> net.py:41 forward -> torch.relu".

let classes = []; // [what owners start with, what people call it]

// {"model@weight": "weights", ...}, of the run that is shown.
export function setClasses(names) {
  classes = Object.entries(names ?? {});
}

// An owner as people say it, without its pool, which the page names already: "weights", "buffers, layers.0.table", "ops@aten".
export function ownerWords(text) {
  const at = text.indexOf("@"), owner = at < 0 ? text : text.slice(at + 1);
  const found = classes.find(([start]) => owner === start || owner.startsWith(`${start}@`));
  return found === undefined ? owner : [found[1], owner.slice(found[0].length + 1)].filter(Boolean).join(", ");
}

// A layer's memory, "HOST@Net@layers@1@up@weight@gradients": "Net: layers.1.up.weight  (gradients)".
function layerWords(text) {
  const [, model, ...path] = text.split("@"), kind = path.pop();
  return `${model}${path.length > 0 ? `: ${path.join(".")}` : ""}  (${kind})`;
}

// A group of blocks by "owner", "layer" or "place".
export function groupWords(by, name) {
  return by === "owner" ? ownerWords(name) : by === "layer" && name.includes("@") ? layerWords(name) : placeName(name);
}

const owned = new Map(); // names of groups that end with an owner: [call site, owner]

// What an answer says of such names, [name, call site, owner].
export function learnOwned(answer) {
  for (const [name, ...parts] of answer.owned ?? []) owned.set(name, parts);
}

// A call site or a group of blocks, whose name may end with its owner: "train.py:9 main  (PTA@model@weight)".
export function placeName(text) {
  const [site, owner] = owned.get(text) ?? [text];
  return site.replaceAll(" -> ", " \u2192 ") + (owner === undefined ? "" : `  (${ownerWords(owner)})`);
}

// The call site of a group, without its owner.
export const siteOf = name => owned.get(name)?.[0] ?? name;
