// Runs a scenario in a real browser: node browser.mjs CHROMIUM SCENARIO URL FOLDER. Prints its findings as JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import * as scenarios from "./scenarios.mjs";

const [path, name, url, folder] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath: path, args: ["--no-sandbox"] });
const errors = [];

export async function open({ width = 1360, height = 900, scheme = "light", hash = "", prepare = null } = {}) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme, bypassCSP: true }); // for axe only
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && /Content Security Policy/.test(message.text()) && errors.push(message.text()));
  if (prepare) await prepare(page);
  await page.goto(`${url}/dashboard${hash}`);
  return page;
}

async function findings(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html).join(" ")}`);
}

try {
  const found = await scenarios[name]({ open, findings, picture: (page, file, fullPage = false) => page.screenshot({ path: `${folder}/${file}.png`, fullPage }) });
  console.log(JSON.stringify({ ...found, errors }));
} finally {
  await browser.close();
}
