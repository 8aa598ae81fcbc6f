import { expect, type Page, test } from "@playwright/test";
import { everybody, go, login, root, rootPassword, site, sitePassword, visitor } from "./site";

/** access logs in by the API. */
async function access(page: Page, server: string, password: string): Promise<string> {
  const res = await page.request.post(server + "/v1/auth/login", { data: { user: "admin", password } });
  return ((await res.json()) as { access: string }).access;
}

test("an upgrade in waves is followed, resumed and aborted", async ({ browser }) => {
  const page = await visitor(browser);
  await login(page);
  const operator = { Authorization: "Bearer " + (await access(page, root, rootPassword)) };
  const owner = { Authorization: "Bearer " + (await access(page, site, sitePassword)) };
  const given = await page.request.put(site + "/v1/grants/waves", { headers: owner });
  expect(given.status(), await given.text()).toBeLessThan(300);
  // The root hears of the grant with the site's next report. The image has no program, so no agent goes over to it.
  await expect
    .poll(
      async () => {
        const res = await page.request.post(root + "/v1/upgrades", {
          headers: operator,
          data: { name: "spring", image: "demo/web:1", all: true, timeout: "24h" },
        });
        return res.status() === 201 ? "begun" : await res.text();
      },
      { timeout: 120_000 },
    )
    .toBe("begun");
  await page.request.post(root + "/v1/upgrades/spring/state", { headers: operator, data: { action: "pause" } });

  await go(page, "/");
  await page.getByRole("link", { name: "Upgrades" }).click();
  await page.getByRole("link", { name: "spring" }).click();
  await expect(page.getByRole("heading", { name: "spring", level: 1 })).toBeVisible();
  await expect(page.getByRole("link", { name: "local" })).toBeVisible();
  await everybody(page, "upgrade");
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
  await expect(page.getByText("spring goes on")).toBeVisible();
  await page.getByRole("button", { name: "Abort" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Abort" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Abort" }).click();
  await expect(page.getByText("Aborted", { exact: true })).toBeVisible();
  await page.getByRole("button", { name: "Forget" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Forget" }).click();
  await expect(page).toHaveURL(/\/ui\/upgrades$/);
  await expect(page.getByText("There are none.")).toBeVisible();
  await page.close();
});
