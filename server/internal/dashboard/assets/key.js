"use strict";
// One key: its state, and changes through the admin API.
const keyForm = (() => {
  const { byId, make, text } = tables;
  const form = byId("key-form"), entries = byId("entries");

  const addEntry = (value) => {
    const input = make("input", { class: "entry", name: "entry", placeholder: "path=/login", "aria-label": "Entry, KEY=VALUE", spellcheck: "false", autocapitalize: "off" });
    input.value = value || "";
    entries.append(input);
    return input;
  };
  // Commas separate entries and a backslash escapes, as on command lines.
  const parts = (words) => (words.match(/(?:\\[^]|[^,\\])+/g) || []).map((part) => part.trimStart().replace(/\\([^])/g, "$1"));
  const written = (entry) => entry.replace(/[\\,]/g, "\\$&");
  const named = () => [...entries.querySelectorAll(".entry")].flatMap((e) => parts(e.value));
  const more = () => Object.fromEntries(["budget", "name"].map((id) => [id, byId(id).value]).filter(([, value]) => value));

  const call = async (path, init) => {
    const response = await fetch(path, { ...init, headers: { Accept: "application/json", ...(init && init.headers) } }).catch(() => { throw new Error("the server does not answer"); });
    const body = await response.json().catch(() => ({}));
    if (response.status === 401) location.reload();
    if (!response.ok) throw new Error(body.detail || `the server answers ${response.status}`);
    return body;
  };

  // mode names the mode of a limit that does not refuse all keys.
  const mode = (l) => l.trial ? ["on trial"] : l.enforce ? [`enforced for ${l.enforce}`, l.shadow ? "not this key" : "this key too"] : l.shadow ? ["shadow"] : [];

  const show = (limits) => {
    byId("answer").replaceChildren(...limits.map((l) => {
      const box = make("div", { class: "known" }), s = l.state;
      box.append(make("h4", {}, l.rule || l.name || "", ...(l.name && l.name !== l.rule ? [make("span", { class: "soft" }, " " + l.name)] : []), ...mode(l).map((words) => make("span", { class: "tag" }, words))));
      if (s && s.limit) {
        const full = s.used + s.remaining;
        const bar = make("div", { class: "gauge" + (s.passes ? "" : " full") }, make("span", {}));
        bar.firstChild.style.width = 100 * Math.min(1, full ? s.used / full : 1) + "%";
        box.append(bar);
      }
      box.append(make("p", {}, l.explanation));
      if (l.key) box.append(make("p", { class: "hint" }, make("code", {}, l.key)));
      return box;
    }));
  };

  const look = async () => {
    const query = new URLSearchParams({ domain: byId("domain").value, ...more() });
    for (const entry of named()) query.append("entry", entry);
    show((await call("/v1/key?" + query)).limits);
  };

  const body = (action) => {
    const asked = { domain: byId("domain").value, entries: named().map((e) => {
      const at = e.indexOf("=");
      if (at < 0) throw new Error(`the entry "${e}" has no "="`);
      return { key: e.slice(0, at), value: e.slice(at + 1) };
    }), ...more() };
    if (["block", "allow", "override"].includes(action) && byId("for").value) asked.for = byId("for").value;
    if (action === "override") asked.limit = byId("limit").value;
    return JSON.stringify(asked);
  };
  const words = { reset: "was reset", block: "is blocked", allow: "has no limit", override: "has another limit", clear: "has its own limit again" };
  const where = { all: "on all instances", process: "in this process", pending: "here, and on the other instances once they are reachable", store: "in the store" };

  const attempt = async (doing) => {
    const done = byId("done");
    done.classList.remove("wrong");
    try {
      text("done", (await doing()) || "");
    } catch (error) {
      done.classList.add("wrong");
      text("done", error.message);
    }
  };
  const act = (action) => attempt(async () => {
    const answer = await call("/v1/key/" + action, { method: "POST", headers: { "Content-Type": "application/json" }, body: body(action) });
    await look();
    const only = answer.keys.find((k) => k.alternative);
    const open = only ? ` This is alternative ${only.alternative}; the others are as they were.` : "";
    const budget = byId("budget").value;
    return `${[...named(), ...(budget ? ["budget " + budget] : [])].join(", ")} ${words[action]}, ${where[answer.spread] || answer.spread}.${open}`;
  });

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(look);
  });
  for (const button of form.querySelectorAll("[data-action]")) button.addEventListener("click", () => { if (form.reportValidity()) act(button.dataset.action); });
  byId("add-entry").addEventListener("click", () => addEntry().focus());

  // pick shows the state of a key that was clicked.
  const pick = (k) => {
    byId("domain").value = k.domain;
    byId("name").value = "";
    byId("budget").value = k.budget || "";
    const first = byId("entry"), [entry, ...rest] = (k.entries || []).map(written);
    entries.replaceChildren(first);
    first.value = entry || "";
    rest.forEach(addEntry);
    byId("one").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    byId("look").focus({ preventScroll: true });
    attempt(look);
  };
  return { pick };
})();
