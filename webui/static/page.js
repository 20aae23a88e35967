// What a page does besides: the reader's own time where a time is pointed at, the
// focus on what was asked for, and nothing out of the browser's memory.
'use strict';

function localTimes(root) {
  for (const t of root.querySelectorAll('time[datetime]')) {
    t.title = new Date(t.dateTime).toLocaleString(undefined, { dateStyle: 'full', timeStyle: 'long' });
  }
}

// A browser keeps whole pages for its back button, also of who has signed out.
window.addEventListener('pageshow', e => { if (e.persisted) location.reload(); });

document.addEventListener('DOMContentLoaded', () => localTimes(document));

new MutationObserver(changes => {
  for (const change of changes) {
    for (const node of change.addedNodes) {
      if (node.nodeType === Node.ELEMENT_NODE) localTimes(node);
    }
    if (change.target.id === 'why' && change.addedNodes.length) change.target.focus();
  }
}).observe(document, { childList: true, subtree: true });
