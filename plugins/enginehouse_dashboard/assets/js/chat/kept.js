// Chats are kept in this browser and nowhere else. Images are left out.

const STORE = "enginehouse-chats";
const MOST = 30;
const MOST_CHARACTERS = 1e6;

/** The newest first, each with its `id`, `models`, `system` and `turns`. */
export function keptChats() {
  try {
    return JSON.parse(localStorage.getItem(STORE)) ?? [];
  } catch {
    return [];
  }
}

function write(chats) {
  const kept = chats.slice(0, MOST);
  while (kept.length && JSON.stringify(kept).length > MOST_CHARACTERS) kept.pop();
  try {
    localStorage.setItem(STORE, JSON.stringify(kept));
  } catch { /* the browser keeps nothing for this page */ }
}

export function keep(chat) {
  const turns = chat.turns.map(({ image, ...turn }) => (image ? { ...turn, pictured: true } : turn));
  write([{ ...chat, turns }, ...keptChats().filter(({ id }) => id !== chat.id)]);
}

export const forget = (chat) => write(keptChats().filter(({ id }) => id !== chat.id));
