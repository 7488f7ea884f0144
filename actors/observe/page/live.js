// Runs once for all pages of a browser that show this node, and takes frames for them. A browser has
// six connections to an address: a seventh page with its own would wait for ever.
"use strict";

const pages = new Set();
let source = null, last = null;

function tell(frame) {
  last = frame;
  for (const page of pages) page.postMessage(frame); // null: there is no connection
}

function open() {
  const mine = source = new EventSource("api/live");
  mine.onmessage = (m) => tell(m.data);
  mine.onerror = () => {
    tell(null);
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (source === mine) open(); }, 3000); // it was refused
  };
}

self.onconnect = (e) => {
  const page = e.ports[0];
  page.onmessage = () => { // it goes
    pages.delete(page);
    if (pages.size > 0) return;
    source.close();
    source = last = null;
  };
  pages.add(page);
  if (!source) open();
  else if (last) page.postMessage(last);
};
