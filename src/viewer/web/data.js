// SPDX-License-Identifier: Apache-2.0
// Where answers come from: the server, or the file itself if it is a report.

import { learnOwned } from "./places.js";

const embedded = document.getElementById("answers");
const answers = embedded === null ? null : JSON.parse(embedded.textContent); // by key; those of a string are packed
const token = new URLSearchParams(location.search).get("token") ?? "";
const kept = new Map(); // recent answers, so that going back costs nothing

export const isReport = answers !== null;
export const aboutReport = answers?.about ?? "";

// The key of an answer in a report: what it carries has no times in it.
function reportKey(what, question) {
  return [what, question.process, question.pool ?? "", question.by ?? "", question.of ?? ""].join("/");
}

// An answer of a report as it was: base64 of what zlib made of its text.
async function unpacked(answer) {
  if (typeof answer !== "string") return answer;
  if (typeof DecompressionStream === "undefined") return { error: "this browser is too old for a report: it cannot unpack its data" };
  const packed = Uint8Array.from(atob(answer), letter => letter.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text());
}

async function askReport(key) {
  if (typeof answers[key] === "string") answers[key] = await unpacked(answers[key]);
  return answers[key] ?? { error: "not in this report: open the run with msmemscope view" };
}

export async function ask(what, question) {
  const answer = await answerOf(what, question);
  learnOwned(answer);
  return answer;
}

async function answerOf(what, question) {
  if (isReport) return askReport(reportKey(what, question));
  const words = new URLSearchParams(Object.entries(question).filter(([, value]) => value !== undefined && value !== null));
  const key = `${what}?${words}`;
  if (kept.has(key)) return kept.get(key);
  const reply = await fetch(`/api/${key}`, { headers: { "X-Msmemscope-Token": token } }).catch(() => null);
  if (reply === null) return { error: "The server does not answer: is msmemscope view still running?" };
  const answer = reply.ok ? await reply.json() : { error: `the server says: ${reply.status}` };
  if (question.now || answer.error) return answer; // there will be more of it
  kept.set(key, answer);
  if (kept.size > 60) kept.delete(kept.keys().next().value);
  return answer;
}
