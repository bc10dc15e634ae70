// Makes and changes elements. Text of clients and engines is only ever set as text, never as markup.

/** An element: `h("td.number", { onclick }, "text", child)`. Names that begin with `on` are listeners. */
export function h(tag, ...children) {
  const given = children[0]?.constructor === Object ? children.shift() : {};
  const [kind, ...classes] = tag.split(".");
  const made = document.createElement(kind);
  if (classes.length) made.className = classes.join(" ");
  if (kind === "button") made.type = kind; // else it would submit its form
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && typeof value !== "string") made[name] = value;
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((each) => each !== null && each !== undefined));
  return made;
}

export const head = (title, ...more) => h("div.head", h("h2", title), ...more);

export const finder = (label) => h("input", { type: "search", placeholder: label, "aria-label": label });

/** A part of an empty list's place: what there is none of, and what helps. */
export const nothing = (what, help) => h("span", h("b", what), help);

export function svg(tag, given = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Sets a text only if it differs, so that nothing is drawn again and a selection stays. */
export function put(node, text) {
  const wanted = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
  return node;
}

export function look(node, name) {
  if (node.className !== name) node.className = name;
}

export function show(node, shown) {
  if (node.hidden === Boolean(shown)) node.hidden = !shown;
}

/** Keeps the children of `parent` equal to `items`. An item that stays keeps its elements, their focus and selection. */
export function keyed(parent, items, key, make) {
  const before = (parent.kept ??= new Map());
  const now = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    const part = before.get(name) ?? make(item);
    part.update(item);
    now.set(name, part);
    if (part.node === place) place = place.nextSibling;
    else if (before.has(name) && place?.contains?.(document.activeElement)) {
      parent.insertBefore(part.node, place.nextSibling); // never moves what has the focus
    } else parent.insertBefore(part.node, place);
  }
  for (const [name, part] of before) if (!now.has(name)) part.node.remove();
  parent.kept = now;
}

/** What the address names in its view, such as a model. */
export const wantedPart = () => decodeURIComponent(location.hash.split("/").slice(1).join("/"));

/** Whether the page began on a small screen: lists are shorter there. */
export const phone = globalThis.matchMedia?.("(max-width: 720px)").matches ?? false;
const PAGE = phone ? 10 : 50;

/**
 * A table whose rows are kept by `keyed`, a page of them first. `columns`: names, of numbers after a `#`. Who makes a row
 * gets the cells of all columns but the first and that of actions, by name.
 */
export function table(columns, none) {
  const body = h("tbody");
  const heads = columns.map((name) => h("th", name.startsWith("#") ? { class: "number", scope: "col" } : { scope: "col" },
    name === "" ? h("span.sr", "actions") : name.replace("#", "")));
  const shown = h("table.folds", h("thead", h("tr", heads)), body);
  const empty = h("p.none", none);
  const cells = () => Object.fromEntries(columns.slice(1).filter(Boolean).map((name) => {
    const label = name.replace("#", "");
    return [label, h(label === name ? "td" : "td.number", { "data-label": label })];
  }));
  let most = PAGE;
  let last = null;
  const more = h("button", { hidden: true, onclick: () => { most += PAGE; rows(...last); } });
  function rows(...given) {
    const [items, key, make] = last = given;
    keyed(body, items.slice(0, most), key, (item) => make(item, cells()));
    show(shown, items.length);
    show(empty, !items.length);
    show(more, items.length > most);
    put(more, `Show more of ${items.length}`);
  }
  return { node: h("div", h("div.scroll", shown, empty), more), body, rows };
}
