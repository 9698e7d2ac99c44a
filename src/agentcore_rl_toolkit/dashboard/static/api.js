// The server's answers, and its events.

export async function get(path, query = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== "" && v !== null && v !== undefined));
  const tail = asked.size ? `?${asked}` : "";
  const answer = await fetch(`/api/${path}${tail}`);
  if (!answer.ok) throw new Error((await answer.text()) || `${answer.status} ${answer.statusText}`);
  return answer.json();
}

export function runPath(run, ...more) {
  return ["runs", run, ...more].map(encodeURIComponent).join("/");
}

// Calls back at most once a second, the last change never lost. Returns how to stop.
export function watch(run, changed, connected) {
  const source = new EventSource(`/api/${runPath(run, "events")}`);
  let last = 0;
  let timer = null;
  let first = true;
  source.addEventListener("change", (event) => {
    connected(true, JSON.parse(event.data));
    if (first) { first = false; return; }
    if (timer !== null) return;
    timer = setTimeout(() => { timer = null; last = Date.now(); changed(); }, Math.max(0, 1000 - (Date.now() - last)));
  });
  source.addEventListener("error", () => connected(false, null));
  return () => { source.close(); clearTimeout(timer); };
}
