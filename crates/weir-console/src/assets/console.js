// The console's own script: pages work without it. It keeps pages current, moves through lists by keyboard, and counts times on.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // Parts of the page come as { id: markup }, written and escaped by the server as the page itself.
  const offline = $("#offline");
  const live = document.body.dataset.live;
  const address = live === "page" ? `/live?page=${encodeURIComponent(location.pathname + location.search)}` : "/live";
  // What somebody works with stays as it is until they have done: nothing jumps under their hands.
  const typed = (field) => field.type !== "hidden" && (field.value !== field.defaultValue || field.checked !== field.defaultChecked);
  const inUse = (place) => place.contains(document.activeElement) || $("details[open]", place) !== null
    || all("input, textarea", place).some(typed);
  // A part begins with a mark of what it says.
  const mark = (markup) => /^<span hidden data-is="([0-9a-f]+)">/.exec(markup)?.[1];
  const shows = (place, markup) => mark(markup) !== undefined && place.firstElementChild?.dataset.is === mark(markup);
  const waiting = new Map();
  const show = () => {
    for (const [id, markup] of waiting) {
      const place = document.getElementById(id);
      const same = !place || shows(place, markup);
      if (!same && inUse(place)) continue;
      if (!same) place.innerHTML = markup;
      waiting.delete(id);
    }
  };
  const watch = () => {
    const stream = new EventSource(address);
    stream.addEventListener("parts", (event) => {
      for (const [id, markup] of Object.entries(JSON.parse(event.data))) waiting.set(id, markup);
      show();
      tick();
    });
    stream.onopen = () => { offline.hidden = true; };
    stream.onerror = () => {
      offline.hidden = false;
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => again(), 5000);
    };
    addEventListener("pagehide", () => stream.close());
  };
  // A stream that was refused does not come back by itself: we are logged out, or Weir was restarted.
  const again = async () => {
    try {
      const answer = await fetch("/", { redirect: "manual" });
      if (answer.type === "opaqueredirect") location.reload(); else watch();
    } catch { setTimeout(again, 5000); }
  };
  if (live && window.EventSource) watch();

  // Times.
  const relative = (seconds) => {
    const far = Math.abs(seconds);
    if (far < 5) return "now";
    const words = far < 60 ? `${far} s` : far < 3600 ? `${Math.floor(far / 60)} min`
      : far < 172800 ? `${Math.floor(far / 3600)} h` : `${Math.floor(far / 86400)} days`;
    return seconds < 0 ? `${words} ago` : `in ${words}`;
  };
  const tick = () => {
    for (const time of all("time[datetime]")) {
      const at = Date.parse(time.dateTime);
      if (!Number.isNaN(at)) {
        const words = relative(Math.trunc((at - Date.now()) / 1000));
        if (time.textContent !== words) time.textContent = words;
      }
    }
  };
  tick();
  setInterval(() => { show(); tick(); }, 1000);

  // Choosing in lists.
  addEventListener("change", (event) => {
    const box = event.target;
    if (!box.matches("input.all")) return;
    for (const other of all("tbody input[type=checkbox]", box.closest("table"))) other.checked = box.checked;
  });

  // j and k move, x chooses, enter opens.
  let row = null;
  const move = (by) => {
    const rows = all("tbody tr");
    if (!rows.length) return;
    // A list that has changed begins anew.
    const at = rows.indexOf(row);
    const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
    if (row) row.classList.remove("here");
    row = next;
    row.classList.add("here");
    row.scrollIntoView({ block: "nearest" });
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, summary, button")) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "x" && row) {
      const box = $("input[type=checkbox]", row);
      if (box) box.checked = !box.checked;
    } else if (event.key === "Enter" && row && event.target === document.body) {
      const link = $("a[href]", row);
      if (link) link.click();
    } else if (event.key === "/") {
      const search = $(".search input");
      if (search) { search.focus(); event.preventDefault(); }
    } else return;
  });

  // A file goes to the API as it is.
  addEventListener("submit", async (event) => {
    const form = event.target.closest("form[data-upload]");
    if (!form) return;
    event.preventDefault();
    const file = $("input[type=file]", form).files[0];
    const said = $("output", form);
    if (!file) return;
    said.textContent = "On its way…";
    try {
      const asked = new URLSearchParams({ name: file.name });
      for (const choice of form.querySelectorAll("select")) if (choice.value) asked.set(choice.name, choice.value);
      const answer = await fetch(`${form.action}?${asked}`, {
        method: "POST", body: file, headers: { "x-weir-token": form.dataset.upload, "content-type": "application/octet-stream" },
      });
      const words = await answer.json();
      if (answer.ok) location.assign(`/lab/samples/${words.sample}`);
      else said.textContent = `Not done. ${words.detail || words.title || answer.status} ${words.hint || ""}`;
    } catch { said.textContent = "Not done. The connection to Weir is lost."; }
  });

  // Nobody sends a form twice.
  addEventListener("submit", (event) => {
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
    setTimeout(() => delete event.target.dataset.sent, 3000);
  });
})();
