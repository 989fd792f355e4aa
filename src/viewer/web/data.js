// SPDX-License-Identifier: Apache-2.0
// Where answers come from: the server, or the file itself if it is a report.

const embedded = document.getElementById("answers");
const answers = embedded === null ? null : JSON.parse(embedded.textContent);
const token = new URLSearchParams(location.search).get("token") ?? "";
const kept = new Map(); // recent answers, so that going back costs nothing

export const isReport = answers !== null;

// The key of an answer in a report: what it carries has no times in it.
function reportKey(what, question) {
  return [what, question.process, question.pool ?? "", question.by ?? "", question.of ?? ""].join("/");
}

export async function ask(what, question) {
  if (isReport) return answers[reportKey(what, question)] ?? { error: "not in this report: open the run with msmemscope view" };
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
