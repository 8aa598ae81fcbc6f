import { type Browser, expect, type Page } from "@playwright/test";
import axe from "axe-core";

declare global {
  interface Window {
    axe: typeof axe;
  }
}

const env = (name: string) => {
  const v = process.env[name];
  if (!v) throw new Error(name + " is not set: these tests are run by e2e.TestDashboard");
  return v;
};

export const root = env("SKERRY_ROOT");
export const site = env("SKERRY_SITE");
/** stranger is a server of somebody else on the same host, whose page has the dashboard in a frame. */
export const stranger = env("SKERRY_STRANGER");
export const rootPassword = env("SKERRY_ROOT_PASSWORD");
export const sitePassword = env("SKERRY_SITE_PASSWORD");

/** control does something to the machine that no page can: stop, start and kill-worker. */
export async function control(what: "stop" | "start" | "kill-worker") {
  const res = await fetch(env("SKERRY_CONTROL") + "/" + what, { method: "POST" });
  if (!res.ok) throw new Error(`${what}: ${await res.text()}`);
}

export async function login(page: Page, server = root, password = rootPassword, user = "admin") {
  await go(page, "/", server);
  await page.getByRole("textbox", { name: "User" }).fill(user);
  await page.getByLabel(/^Password/).fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
  await expect(page.getByRole("heading", { name: "Overview", level: 1 })).toBeVisible();
}

/** go opens a page of the dashboard. */
export async function go(page: Page, path: string, server = root) {
  // Interfaces of instances come and go on the machine that the browser is on, which makes it drop what it loads.
  for (let tries = 5; ; tries--) {
    try {
      await page.goto(server + "/ui" + path);
      return;
    } catch (e) {
      if (tries === 0 || !/ERR_NETWORK_CHANGED|chrome-error:/.test(String(e))) throw e;
      await page.waitForTimeout(500);
    }
  }
}

/** visit goes to another page as a link does: without loading the dashboard anew, which costs more than most pages. */
export async function visit(page: Page, path: string) {
  await page.evaluate((to) => {
    history.pushState(null, "", to);
    dispatchEvent(new PopStateEvent("popstate"));
  }, "/ui" + path);
}

/** write puts a text into the editor in place of what is there. */
export async function write(page: Page, label: string, text: string) {
  await page.getByRole("textbox", { name: label }).click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.press("Delete");
  await page.keyboard.insertText(text);
}

/**
 * accessible checks a page by the rules of WCAG 2.2 AA that a program can check, once what moves has come to rest; with
 * rules, by those alone.
 */
export async function accessible(page: Page, rules?: string[]) {
  const options: axe.RunOptions = {
    runOnly: rules ?? ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
    reporter: "no-passes", // what is right with each element is most of what would be sent here
    resultTypes: ["violations"],
  };
  await expect(async () => {
    // Once for each document: to read the program takes longer than many a page.
    await page.evaluate(`"axe" in window || (() => { ${axe.source} })()`);
    const r = await page.evaluate((o) => window.axe.run(document, o), options);
    expect(
      r.violations.map(
        (v) =>
          `${v.id}: ${v.help}\n  ${v.nodes
            .map((n) => n.target.join(" ") + " " + (n.any[0]?.message ?? n.all[0]?.message ?? ""))
            .slice(0, 4)
            .join("\n  ")}`,
      ),
    ).toEqual([]);
  }).toPass({ timeout: 300_000, intervals: [500] });
}

/** fits checks that a page needs no scrolling to the side; tables scroll in places of their own. */
export async function fits(page: Page) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  expect(over, "pixels beyond the right edge").toBeLessThanOrEqual(0);
}

/** tablesFit checks that a usual screen shows tables whole. */
export async function tablesFit(page: Page) {
  const cut = await page.evaluate(() =>
    [...document.querySelectorAll(".table-wrap, .instances-wrap")]
      .filter((e) => e.scrollWidth > e.clientWidth)
      .map((e) => `${e.getAttribute("aria-label")}: ${e.scrollWidth - e.clientWidth} pixels`),
  );
  expect(cut, "tables that are cut off").toEqual([]);
}

/** visitor opens a browser of its own, with no cookies. */
export async function visitor(browser: Browser, colorScheme: "light" | "dark" = "light"): Promise<Page> {
  return (await browser.newContext({ ignoreHTTPSErrors: true, colorScheme, reducedMotion: "reduce" })).newPage();
}

/**
 * everybody checks that what is seen now can be used by everybody: by the rules in dark and in light colours, without
 * scrolling to the side on a small screen, and with whole tables on a usual one. SKERRY_SHOTS names a folder for pictures of it.
 */
export async function everybody(page: Page, name: string) {
  const shot = async (how: string) => {
    if (process.env.SKERRY_SHOTS) await page.screenshot({ path: `${process.env.SKERRY_SHOTS}/${name}-${how}.png` });
  };
  for (const colorScheme of ["dark", "light"] as const) {
    await page.emulateMedia({ colorScheme });
    await page.waitForTimeout(200);
    // The other rules see no colours: once is enough, and half the work.
    await accessible(page, colorScheme === "dark" ? ["color-contrast", "link-in-text-block"] : undefined);
    await shot(colorScheme);
  }
  for (const width of [360, 1400]) {
    await page.setViewportSize({ width, height: 740 });
    await page.waitForTimeout(400);
    await fits(page);
    if (width === 1400) await tablesFit(page);
    if (width === 360) await shot("small");
  }
  await page.setViewportSize({ width: 1280, height: 900 });
}
