// Keeps an open page up to date. Without this script, the page shows the state at the time it was loaded.

// Text from runs is only ever inserted as text, and without the control characters that the server leaves out too.
const plain = (text) => String(text ?? "").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "");
const make = (tag, text, name) => {
  const e = document.createElement(tag);
  e.textContent = plain(text);
  if (name) e.className = name;
  return e;
};
const title = (t) => plain(t.role ? t.role + " : " + t.name : t.name).slice(0, 300);
const signs = {
  failed: ["×", "bad"], unreachable: ["×", "bad"], refused: ["×", "bad"], ok: ["✓", "good"],
  changed: ["±", "new"], created: ["±", "new"], deleted: ["±", "new"],
};
const sign = (word) => {
  const [shape, name] = Object.hasOwn(signs, word) ? signs[word] : ["–", "cut"];
  const e = make("span", "", "sign " + name);
  const s = make("span", shape);
  s.setAttribute("aria-hidden", "true");
  e.append(s, " " + plain(word));
  return e;
};
const row = (...cells) => {
  const tr = document.createElement("tr");
  for (const cell of cells) {
    const td = document.createElement("td");
    td.append(...[cell].flat());
    tr.append(td);
  }
  return tr;
};

// The result of an action is shown once, and not again when the page is reloaded.
const here = new URL(location.href);
if (here.searchParams.has("did") || here.searchParams.has("idle")) {
  here.searchParams.delete("did");
  here.searchParams.delete("idle");
  history.replaceState(null, "", here);
}

// Screen readers read out the text of this element.
const status = document.querySelector("[data-status]");

// follow reads events. When the connection is lost, it reconnects and continues after the last event. It returns a
// function that reloads the page.
function follow(address, say, kinds) {
  const url = new URL(address, location.href);
  let wait = 1000, source;
  const open = () => {
    source = new EventSource(url);
    source.onopen = () => { wait = 1000; say(""); };
    source.onerror = () => {
      say("The connection is lost. It is tried again.");
      source.close();
      setTimeout(open, wait);
      wait = Math.min(2 * wait, 10000);
    };
    source.addEventListener("resync", reload);
    for (const [kind, handle] of Object.entries(kinds)) {
      source.addEventListener(kind, (m) => {
        if (m.lastEventId) url.searchParams.set("cursor", m.lastEventId);
        handle(JSON.parse(m.data));
      });
    }
  };
  // reload reloads the page once the server answers.
  const reload = () => {
    source.close();
    fetch(location.href).then((r) => r.ok ? location.reload() : Promise.reject(), () => Promise.reject()).catch(() => {
      say("The operator does not answer. It is asked again.");
      setTimeout(reload, wait);
      wait = Math.min(2 * wait, 10000);
    });
  };
  open();
  return reload;
}

const live = document.querySelector("[data-live]");
if (live) {
  let tasks = Number(live.dataset.tasks), writes = Number(live.dataset.writes);
  const [taskRows, writeRows] = ["task", "write"].map((kind) => document.querySelector(`[data-rows=${kind}]`));
  const folded = document.querySelector("[data-quiet]");
  const reload = follow(live.dataset.live, (text) => { status.textContent = text; }, {
    task(e) {
      const t = e.task, n = e.number ?? 0;
      if (n < tasks) return; // the page has this task already
      if (n > tasks) return reload(); // a task in between is missing
      tasks = n + 1;
      const quiet = t.outcome === "ok" || t.outcome === "skipped";
      const about = [title(t)];
      if (t.items) about.push(" ", make("small", t.items + " items"));
      about.push(document.createElement("br"), make("small", [t.path, t.action, t.host && "on " + t.host].filter(Boolean).join(" ")));
      if (!quiet && t.message) about.push(make("pre", t.message.slice(0, 2048), "lines"));
      const took = t.started ? (Math.max(0, new Date(t.finished) - new Date(t.started)) / 1000).toFixed(2) + " s" : "";
      const tr = row(String(n + 1), sign(t.outcome), about, took);
      tr.dataset.number = n;
      if (quiet) {
        tr.className = "quiet";
        folded.textContent = Number(folded.textContent) + 1;
      }
      taskRows.append(tr);
      live.textContent = `Task ${n + 1} has ended: ${title(t)}`;
      if (t.outcome === "failed" || t.outcome === "unreachable") status.textContent = `Task ${n + 1} has failed.`;
    },
    write(e) {
      const w = e.write, n = e.number ?? 0;
      if (n < writes) return;
      writes = n + 1;
      if (w.result === "unchanged") return;
      const name = w.namespace ? w.namespace + "/" + plain(w.name) : w.name;
      writeRows.append(row(sign(w.result), plain(w.resource + " " + (name ?? "") + (w.dryRun ? " (dry run)" : "")), plain((w.fields ?? []).join(", ")), ""));
    },
    "run-ended": () => reload(),
    "run-left": () => { live.textContent = "The run continues, but this replica of the operator no longer follows it. Open the page of another replica."; },
  });
}

const changes = document.querySelector("[data-changes]");
if (changes) {
  const runs = new Set();
  const say = (text) => {
    status.textContent = text;
    if (text || !runs.size) return;
    const a = make("a", `${runs.size} runs have started, ended or moved to another replica. Show them.`);
    a.href = location.href;
    status.append(a);
  };
  const changed = (e) => { runs.add(e.run.id); say(""); };
  follow(changes.dataset.changes, say, { "run-started": changed, "run-ended": changed, "run-left": changed, task() {}, write() {} });
}

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select, textarea")) return;
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.indexOf(document.activeElement);
  const to = {
    "/": () => document.querySelector("[data-filter]"),
    j: () => rows[at + 1],
    k: () => rows[Math.max(at - 1, 0)],
    f: () => document.querySelector("#failure") ?? document.querySelector("tr .sign.bad")?.closest("tr").querySelector("a"),
  }[e.key]?.();
  if (to) {
    e.preventDefault();
    to.focus();
  }
});
