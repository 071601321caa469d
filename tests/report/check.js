// Opens pages of `ziptier report` in a browser: node check.js BROWSER SCREENSHOTS PAGE.html...
//
// Each page is checked on light and dark screens and on paper, 1280 and 400 pixels wide. The screenshots are for people
// to look at.
import { readFileSync, statSync } from "node:fs";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import axe from "axe-core";
import { chromium } from "playwright-core";

const BYTES_MAX = 2_000_000;
// How far texts may reach into each other, in pixels of the plot.
const OVERLAP_MAX = 2;
const VIEWS = ["light", "dark", "print"].flatMap((look) => [1280, 400].map((width) => ({ look, width })));

const [browserPath, screenshots, ...pages] = process.argv.slice(2);
const counts = { passed: 0, failed: 0 };
function expect(what, found, wanted) {
  const holds = JSON.stringify(found) === JSON.stringify(wanted);
  counts[holds ? "passed" : "failed"] += 1;
  if (!holds) console.log(`FAILED: ${what}: ${JSON.stringify(found, null, 1)}`);
}

// Texts of a plot that cover each other, or lie outside of it.
function overlaps(overlapMax) {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const scale = svg.viewBox.baseVal.width / svg.getBoundingClientRect().width;
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    const name = svg.closest("figure").querySelector("h3").textContent;
    texts.forEach(([text, box], place) => {
      const outside = Math.max(frame.left - box.left, box.right - frame.right, box.bottom - frame.bottom);
      if (outside * scale > overlapMax) found.push(`${name}: "${text}" is cut off`);
      for (const [other, its] of texts.slice(place + 1)) {
        const across = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const down = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (Math.min(across, down) * scale > overlapMax) found.push(`${name}: "${text}" covers "${other}"`);
      }
    });
  }
  return found;
}

async function opened(browser, path, { look, width }, javaScriptEnabled = true) {
  const context = await browser.newContext({
    viewport: { width, height: 900 },
    colorScheme: look === "dark" ? "dark" : "light",
    javaScriptEnabled,
  });
  const page = await context.newPage();
  const said = [];
  const url = pathToFileURL(path).href;
  page.on("console", (message) => said.push(message.text()));
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("request", (request) => request.url() === url || said.push(`asked for ${request.url()}`));
  if (look === "print") await page.emulateMedia({ media: "print" });
  await page.goto(url);
  return { context, page, said };
}

async function checkView(browser, path, view) {
  const name = `${basename(path, ".html")}-${view.look}-${view.width}`;
  const { context, page, said } = await opened(browser, path, view);
  expect(`${name}: messages and requests`, said, []);
  const widths = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  expect(`${name}: is no wider than the window`, widths[0] <= widths[1], true);
  await page.screenshot({ path: `${screenshots}/${name}.png`, fullPage: true });
  expect(`${name}: texts that overlap`, await page.evaluate(overlaps, OVERLAP_MAX), []);
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => axe.run());
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.length}, such as ${nodes[0].html.slice(0, 200)}`);
  expect(`${name}: accessibility`, told, []);
  await context.close();
}

async function checkKeyboard(browser, path) {
  const { context, page } = await opened(browser, path, { look: "light", width: 1280 });
  await page.keyboard.press("Tab");
  const first = await page.evaluate(() => document.activeElement.className);
  expect(`${basename(path)}: the first key leads to the link past the menu`, first, "skip");
  const folded = await page.locator("details").count();
  const closed = [];
  for (let place = 0; place < folded; place += 1) {
    const details = page.locator("details").nth(place);
    const summary = details.locator("summary").first();
    await summary.focus();
    await page.keyboard.press("Enter");
    if (!(await details.evaluate((one) => one.open))) closed.push(await summary.textContent());
  }
  expect(`${basename(path)}: details stay closed`, closed, []);
  expect(`${basename(path)}: there are details`, folded > 0, true);
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => axe.run());
  expect(`${basename(path)}: accessibility when all is open`, violations.map(({ id }) => id), []);
  await context.close();
}

async function checkWithoutScripts(browser, path) {
  const { context, page } = await opened(browser, path, { look: "light", width: 1280 }, false);
  const plots = await page.locator("svg").count();
  const figures = (readFileSync(path, "utf8").match(/<svg /g) ?? []).length;
  expect(`${basename(path)}: plots without JavaScript`, [plots, plots > 0], [figures, true]);
  await context.close();
}

const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox"] });
for (const path of pages) {
  expect(`${basename(path)}: bytes`, statSync(path).size < BYTES_MAX, true);
  for (const view of VIEWS) await checkView(browser, path, view);
  await checkKeyboard(browser, path);
  await checkWithoutScripts(browser, path);
}
await browser.close();
console.log(`${counts.passed} passed, ${counts.failed} failed`);
process.exit(counts.failed > 0 || counts.passed === 0 ? 1 : 0);
