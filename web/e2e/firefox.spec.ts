import { expect, test } from "@playwright/test";
import { accessible, fits, go, login, site, sitePassword, visit } from "./site";

// A few pages in another browser: whether scripts, styles, the editor, the stream of changes and the map do there what they do in Chromium.
test("an application is begun, deployed and seen in Firefox", async ({ browser }) => {
  const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
  const said: string[] = [];
  page.on("pageerror", (e) => said.push(e.message));
  await login(page);
  await page.getByRole("link", { name: "New application" }).click();
  await page.getByRole("textbox", { name: /^Name/ }).fill("tide");
  await page.getByRole("textbox", { name: /^Image/ }).fill("demo/web:1");
  const yaml = page.getByRole("textbox", { name: "Manifest as YAML" });
  await expect(yaml).toContainText("image: demo/web:1");
  await page.getByRole("button", { name: "Plan and apply" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Apply" }).click();
  await expect(page.getByText("1 of 1 ready")).toBeVisible();
  for (const path of ["/", "/instances", "/map?app=default/tide", "/clusters/local", "/apps/default/tide?tab=manifest"])
    await test.step(path, async () => {
      await visit(page, path);
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      await accessible(page);
      await page.setViewportSize({ width: 390, height: 740 });
      await fits(page);
      await page.setViewportSize({ width: 1400, height: 900 });
      await fits(page);
    });
  await login(page, site, sitePassword);
  await go(page, "/workers/w1", site);
  await expect(page.getByRole("heading", { name: "w1", level: 1 })).toBeVisible();
  expect(said, "errors of scripts").toEqual([]);
});
