// What people do on the page. Every scenario returns what it found.
import { crowd } from "./crowd.mjs";
import { day as aDay } from "./day.mjs";

const VIEWS = ["overview", "requests", "chat", "operate", "usage", "logs"];
const WATCHED_MS = 10000;
const MOST_SCREENS = 5;

/** Every view on a desktop, a phone, and in the dark: its picture, what axe finds, and whether it is wider than the screen. */
export async function views({ open, findings, picture }) {
  const violations = {};
  const long = [];
  const wide = [];
  for (const [device, options] of Object.entries({ desktop: {}, dark: { scheme: "dark" }, phone: { width: 390, height: 844 } })) {
    for (const view of VIEWS) {
      const page = await open({ ...options, hash: `#${view}` });
      await page.waitForSelector(`#view-${view}:not([hidden])`);
      await page.waitForTimeout(1000); // charts and lists have come
      await picture(page, `${device}-${view}`, true);
      const found = await findings(page);
      if (found.length) violations[`${device} ${view}`] = found;
      const screens = await page.evaluate(() => document.documentElement.scrollHeight / innerHeight);
      if (screens > MOST_SCREENS) long.push(`${device} ${view}: ${screens}`);
      if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) wide.push(`${device} ${view}`);
      await page.close();
    }
  }
  return { violations, wide, long };
}

/** Looks at a time in one chart, shows a part of it and all again; reloads the page. */
export async function charts({ open, picture }) {
  const said = {};
  const page = await open();
  const plot = page.locator(".chart svg").first();
  await page.locator(".chart .mark").first().waitFor({ state: "attached" });
  said.marks = await page.locator(".chart .mark").count() > 0;
  await plot.scrollIntoViewIfNeeded();
  const { x, y, width } = await plot.boundingBox();
  await page.mouse.move(x + width / 2, y + 40);
  const texts = await page.locator(".chart:visible .now").allTextContents();
  said.cursors = [...new Set(texts.map((text) => text === texts[0] && /:/.test(text)))];
  await page.mouse.down();
  await page.mouse.move(x + width - 20, y + 40, { steps: 3 });
  await page.mouse.up();
  const part = page.getByRole("button", { name: "Show all of the time" });
  said.part = await part.textContent();
  await picture(page, "charts");
  await part.click();
  said.whole = await part.isHidden();
  await page.reload();
  await page.locator(".events li").first().waitFor();
  said.events = await page.locator(".events").textContent();
  return { said };
}

/** A day of a gateway with four models, wide and on a phone: the charts of 24 hours with their marks. */
export async function day({ open, picture, findings }) {
  const violations = [];
  for (const [device, options] of Object.entries({ wide: { height: 2600 }, dark: { height: 2600, scheme: "dark" }, phone: { width: 390, height: 844 } })) {
    const page = await open({ ...options, prepare: aDay });
    await page.getByRole("button", { name: "24 h" }).click();
    await page.locator(".chart .mark").first().waitFor({ state: "attached" });
    await page.waitForTimeout(1000); // the lines have come
    await page.evaluate(() => scrollTo(0, 0));
    await picture(page, `day-${device}`, true);
    violations.push(...await findings(page));
    await page.close();
  }
  return { violations };
}

/** Reads the batches of all callers. */
export async function batches({ open, picture }) {
  const page = await open({ hash: "#operate" });
  const rows = page.locator("#view-operate h2", { hasText: "Batches" }).locator("xpath=../..").locator("tbody tr");
  await rows.filter({ hasText: "2 of 2" }).waitFor();
  await picture(page, "batches", true);
  return { rows: await rows.count(), text: (await rows.first().textContent()).replace(/batch_\w+/, "batch") };
}

/** Loads, unloads after a question, and drains; reads what the page says. */
export async function operate({ open }) {
  const said = {};
  const page = await open();
  const card = page.locator("article[aria-label='small-b']");
  const word = card.locator(".title .chip");
  said.before = await word.textContent();
  await page.getByText("What another model would stop").click();
  await page.locator(".plan", { hasText: "small-b needs" }).waitFor();
  said.plan = await page.locator(".plan").textContent();
  await card.getByRole("button", { name: "Load" }).click();
  await word.filter({ hasText: "ready" }).waitFor();
  said.loaded = await word.textContent();
  const unload = card.getByRole("button", { name: "Unload" });
  await unload.click();
  said.asked = await card.getByRole("group").getAttribute("aria-label");
  await page.keyboard.press("Escape");
  said.kept = await word.textContent();
  said.focus = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  await page.waitForTimeout(2600); // a look at the status: the row stays, and so does the focus
  said.focusLater = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  await unload.click();
  await card.getByRole("button", { name: "Yes, unload" }).click();
  await word.filter({ hasText: "stopped" }).waitFor();
  said.unloaded = await word.textContent();
  await page.goto(`${page.url().split("#")[0]}#operate`);
  const row = page.locator("#view-operate tr", { hasText: "small-a" });
  await row.getByRole("button", { name: "Drain" }).click();
  await row.getByRole("button", { name: "Yes, drain" }).click();
  await row.locator(".chip").filter({ hasText: "draining" }).waitFor();
  await row.getByRole("button", { name: "Undrain" }).click();
  await row.locator(".chip").filter({ hasText: /ready|stopped/ }).waitFor();
  await page.getByRole("button", { name: "Preview the changes" }).click();
  await page.getByText("Nothing has changed.").waitFor();
  await page.getByLabel("Model to load").fill("small-b");
  await page.getByRole("button", { name: "Explain the swap" }).click();
  said.swap = await page.locator("#view-operate p", { hasText: "would run" }).textContent();
  return { said };
}

/** Jumps, loads and unloads with the keyboard alone. */
export async function palette({ open, findings, picture }) {
  const said = {};
  const page = await open();
  await page.locator("article[aria-label='small-b']").waitFor();
  const word = page.locator("article[aria-label='small-b'] .title .chip");
  const told = page.locator("dialog.palette [role=status]");
  const type = async (text) => { await page.keyboard.press("Control+k"); await page.keyboard.type(text); };
  await type("load small-b");
  await picture(page, "palette");
  said.violations = await findings(page);
  await page.getByRole("option", { name: "Load small-b", exact: true }).waitFor();
  await page.keyboard.press("Enter");
  await told.filter({ hasText: "done" }).waitFor();
  await page.keyboard.press("Escape");
  await word.filter({ hasText: "ready" }).waitFor();
  await type("unload small-b");
  await page.keyboard.press("Enter");
  said.asks = await page.getByRole("option", { selected: true }).textContent();
  await page.keyboard.press("Enter");
  await told.filter({ hasText: "done" }).waitFor();
  await page.keyboard.press("Escape");
  await type("show logs");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#view-logs:not([hidden])");
  said.closed = await page.locator("dialog.palette").isHidden();
  await type("nothing of that name");
  said.nothing = await told.textContent();
  return { said };
}

/** Chats, looks at the request while it is answered, stops another, and reads logs. */
export async function chat({ open, picture }) {
  const said = {};
  const page = await open({ hash: "#chat/small-a" });
  await page.getByLabel("Message").fill("Hello");
  await page.keyboard.press("Enter");
  await page.locator(".figures", { hasText: "tokens/s" }).waitFor();
  await page.getByRole("button", { name: "Send" }).waitFor(); // the answer is whole
  said.who = await page.locator(".turn.assistant .who").textContent();
  said.figures = await page.locator(".turn.assistant .figures").textContent();
  await page.locator("summary", { hasText: "Options" }).click();
  await page.getByLabel("Most tokens").fill("4000");
  await page.getByLabel("Message").fill("A long answer, please");
  await page.keyboard.press("Enter");
  await page.locator(".turn.assistant").nth(1).locator(".figures", { hasText: "first token" }).waitFor();
  const other = await open({ hash: "#requests" });
  const live = other.locator("#view-requests tr", { hasText: "answering" });
  await live.locator("td[data-label='tokens/s']", { hasText: /[0-9]/ }).waitFor();
  await live.locator("button.link").click();
  await other.locator("dialog .phase", { hasText: "answering" }).waitFor();
  said.drawer = await other.locator("#drawer").textContent();
  await picture(other, "drawer");
  await other.keyboard.press("Escape");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Send" }).waitFor();
  await page.locator("summary", { hasText: "As code" }).click();
  said.code = await page.locator("pre.code").first().textContent();
  await other.locator("#view-requests .none", { hasText: "No request is live" }).waitFor();
  await other.locator("#view-requests button.link").first().click();
  await other.locator("dialog dt", { hasText: "expected in the cache" }).waitFor();
  said.ended = await other.locator("#drawer").textContent();
  await page.goto(`${page.url().split("#")[0]}#logs`);
  await page.locator("pre.log", { hasText: "small-a is ready" }).waitFor();
  await page.getByLabel("Only lines with").fill("is ready");
  said.lines = await page.locator("pre.log").textContent();
  return { said };
}

/** Asks two models at once, and finds the chat again after a reload. */
export async function compare({ open, picture }) {
  const page = await open({ hash: "#chat/small-a" });
  await page.getByRole("button", { name: "Compare with another model" }).click();
  await page.getByLabel("Other model").selectOption("small-b");
  await page.getByLabel("Message").fill("Who are you?");
  await page.keyboard.press("Enter");
  await page.locator(".figures", { hasText: "in all" }).nth(1).waitFor();
  await page.getByRole("button", { name: "New chat" }).waitFor(); // both answers are whole
  await picture(page, "compare");
  const answers = () => page.locator(".turn.assistant").allTextContents();
  const before = await answers();
  await page.reload();
  await page.getByLabel("Chats").selectOption({ index: 1 });
  const after = await answers();
  await page.getByRole("button", { name: "Forget this chat" }).click();
  return { before: before.length, same: before.join() === after.join(), left: await page.evaluate(() => localStorage.getItem("enginehouse-chats")) };
}

/** A key that is no admin's may chat and see what it has used, and nothing else. */
export async function caller({ open, picture }) {
  const page = await open();
  await page.getByLabel("This gateway has keys").fill("k-caller");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#view-chat:not([hidden])");
  const tabs = await page.locator("nav a:visible").allTextContents();
  await page.locator("#chat-model option").first().waitFor({ state: "attached" });
  await page.getByLabel("Message").fill("Hello");
  await page.keyboard.press("Enter");
  await page.locator(".figures", { hasText: "tokens/s" }).waitFor();
  await page.getByRole("button", { name: "Send" }).waitFor();
  await page.getByRole("link", { name: "Usage" }).click();
  await page.locator("#view-usage td", { hasText: "own" }).first().waitFor();
  await picture(page, "caller-usage");
  const parts = await page.locator("#view-usage h2:visible").allTextContents();
  const left = await page.locator("#view-usage .limits .row span").first().textContent();
  return { tabs, parts, left, bars: await page.locator(".chart.usage rect").count() > 0 };
}

/** An operator makes a key, gives it another secret and revokes it. */
export async function keys({ open, picture }) {
  const page = await open({ hash: "#usage" });
  await page.getByLabel("This gateway has keys").fill("k-boss");
  await page.keyboard.press("Enter");
  await page.getByLabel("Name of the new key").fill("new-one");
  await page.getByRole("button", { name: "New key" }).click();
  const row = page.locator("#view-usage tr", { hasText: "new-one" });
  await row.waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("key new-one");
  await page.keyboard.press("Enter");
  await page.locator("#view-usage tr[aria-current]", { hasText: "new-one" }).waitFor();
  const left = await page.locator("#view-usage tr", { hasText: "caller" }).locator(".limits .row span").last().textContent();
  const secret = page.locator("#view-usage code");
  const first = await secret.textContent();
  await picture(page, "keys");
  await row.getByRole("button", { name: "Rotate" }).click();
  await row.getByRole("button", { name: "Yes, rotate" }).click();
  await page.waitForFunction((before) => document.querySelector("#view-usage code").textContent !== before, first);
  await row.getByRole("button", { name: "Revoke" }).click();
  await row.getByRole("button", { name: "Yes, revoke" }).click();
  await row.waitFor({ state: "detached" });
  return { left: left.split(",")[0].replace(/^59/, "60"), secrets: [first, await secret.textContent()].map((each) => each.split("-")[0]) };
}

/** 500 backends and 2,000 live requests: the share of a core that the page takes, its nodes, and the first paint. */
export const many = (parts) => watched(parts, 500, 2000);

/** As `many`, with a crowd of 50 and 200. */
export const some = (parts) => watched(parts, 50, 200);

async function watched({ open, picture }, backends, requests) {
  const figures = {};
  for (const view of ["overview", "requests", "operate"]) {
    const page = await open({ hash: `#${view}`, prepare: crowd(backends, requests) });
    await page.waitForSelector(`#view-${view}:not([hidden])`);
    await page.waitForTimeout(2500);
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable");
    const busy = async () => (await session.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value;
    const before = await busy();
    await page.waitForTimeout(WATCHED_MS);
    figures[view] = { share: (await busy() - before) / (WATCHED_MS / 1000), nodes: await page.evaluate(() => document.querySelectorAll("*").length),
      paint: await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime) };
    await picture(page, `many-${view}`);
    await page.close();
  }
  return { figures };
}
