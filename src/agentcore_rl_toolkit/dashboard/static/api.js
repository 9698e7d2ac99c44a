// The server's answers, and its events; in a page that holds one rollout, what was kept of them.

const kept = document.getElementById("kept");
const answers = kept ? JSON.parse(kept.textContent) : null;

// Where a page of one rollout begins; null on a server's page.
export const start = answers ? answers[""] : null;

export async function get(path, query = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== "" && v !== null && v !== undefined));
  const tail = asked.size ? `?${asked}` : "";
  if (answers) {
    if (path + tail in answers) return answers[path + tail];
    throw new Error("this page holds one rollout only; the others are in the dashboard of the run");
  }
  const answer = await fetch(`/api/${path}${tail}`);
  if (!answer.ok) throw new Error((await answer.text()) || `${answer.status} ${answer.statusText}`);
  return answer.json();
}

export function runPath(run, ...more) {
  return ["runs", run, ...more].map(encodeURIComponent).join("/");
}

// Calls back at most once a second, the last change never lost; seen: what the page shows already.
// Returns how to stop.
export function watch(path, seen, changed, connected) {
  const source = new EventSource(`/api/${path}`);
  let last = 0;
  let timer = null;
  let first = true;
  source.addEventListener("change", (event) => {
    connected(true, JSON.parse(event.data));
    const known = first && JSON.stringify(JSON.parse(event.data)) === JSON.stringify(seen);
    first = false;
    if (known) return;
    if (timer !== null) return;
    timer = setTimeout(() => { timer = null; last = Date.now(); changed(); }, Math.max(0, 1000 - (Date.now() - last)));
  });
  source.addEventListener("error", () => connected(false, null));
  return () => { source.close(); clearTimeout(timer); };
}
