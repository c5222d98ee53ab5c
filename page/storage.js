// The browser's storage for small texts. Where the browser denies it, or it is full, texts are kept as long as the page.

function open(name) {
  const own = new Map();
  let storage = null;
  try {
    storage = window[name];
  } catch {} // it is denied
  return {
    /** Returns the text; null: there is none. */
    get: (key) => own.get(key) ?? storage?.getItem(key) ?? null,

    /** text null: removes it. */
    set(key, text) {
      own.delete(key);
      try {
        if (text === null) storage?.removeItem(key);
        else if (storage) storage.setItem(key, text);
        else own.set(key, text);
      } catch {
        own.set(key, text);
      }
    },
  };
}

/** Shared by all tabs, and kept. */
export const local = open('localStorage');

/** Of this tab; it survives a reload of the page. */
export const session = open('sessionStorage');
