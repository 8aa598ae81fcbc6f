import { expect, type Page, test } from "@playwright/test";
import { accessible, everybody, go, login, visitor } from "./site";

// What an admin does for others, through every form, and what a report of a benchmark looks like.
test.describe.configure({ mode: "serial" });

let page: Page;

test.beforeAll(async ({ browser }) => {
  page = await visitor(browser);
  await login(page);
});

test.afterAll(() => page.close());

const dialog = () => page.getByRole("dialog");
const make = (name: string) => dialog().getByRole("button", { name, exact: true }).click();

test("an access token is made, shown once and taken back", async () => {
  await go(page, "/people");
  await page.getByRole("button", { name: "New token" }).click();
  await dialog().getByRole("textbox", { name: /^Name/ }).fill("backup");
  await make("Make");
  await expect(page.getByLabel("The token", { exact: true })).toHaveText(/.{20}/);
  await accessible(page);
  await page.getByRole("button", { name: "I have stored it" }).click();
  await page.getByRole("button", { name: "Delete backup" }).click();
  await make("Delete");
  await expect(page.getByText("You have none.")).toBeVisible();
});

test("an organisation gets a quota, a namespace and a secret that nobody reads back", async () => {
  await go(page, "/people?tab=orgs");
  await page.getByRole("button", { name: "New organisation" }).click();
  await dialog().getByRole("textbox", { name: /^Name/ }).fill("acme");
  await make("Make");
  await page.getByRole("button", { name: "Quota of acme" }).click();
  await dialog().getByRole("textbox", { name: "Memory" }).fill("8Gi");
  await accessible(page);
  await make("Save");
  await expect(page.getByText("of 8.0 GiB")).toBeVisible();
  await page.getByRole("button", { name: "New namespace" }).click();
  await dialog().getByRole("textbox", { name: /^Name/ }).fill("quay");
  await dialog()
    .getByRole("textbox", { name: /^Organisation/ })
    .click();
  await page.getByRole("option", { name: "acme" }).click();
  await make("Make");
  await expect(page.getByRole("button", { name: "Delete quay" })).toBeVisible();

  await go(page, "/people?tab=secrets");
  await page.getByRole("textbox", { name: "Namespace" }).click();
  await page.getByRole("option", { name: "quay" }).click();
  await page.getByRole("button", { name: "Put secret" }).click();
  await dialog().getByRole("textbox", { name: /^Name/ }).fill("db");
  await dialog()
    .getByRole("textbox", { name: /^File name/ })
    .fill("password");
  await dialog().getByRole("textbox", { name: "Text" }).fill("not-to-be-seen-again");
  await make("Put");
  await expect(page.getByRole("button", { name: "Replace db" })).toBeVisible();
  await expect(page.locator("body")).not.toContainText("not-to-be-seen-again");
  await page.getByRole("button", { name: "Delete db" }).click();
  await make("Delete");
  await expect(page.getByRole("button", { name: "Replace db" })).toHaveCount(0);
});

test("a user is made, locked out, let in again and given another password", async ({ browser }) => {
  await go(page, "/people?tab=users");
  await page.getByRole("button", { name: "New user" }).click();
  await dialog().getByRole("textbox", { name: /^Name/ }).fill("vera");
  await dialog()
    .getByLabel(/^First password/)
    .fill("first-of-vera-1");
  await accessible(page);
  await make("Make");
  await page.getByRole("button", { name: "Disable vera" }).click();
  await make("Disable");
  await page.getByRole("button", { name: "Enable vera" }).click();
  await expect(page.getByRole("button", { name: "Disable vera" })).toBeVisible();
  await page.getByRole("button", { name: "New password of vera" }).click();
  await dialog()
    .getByLabel(/^New password/)
    .fill("second-of-vera-2");
  await make("Save");
  await expect(dialog()).toHaveCount(0);
  const vera = await visitor(browser);
  await login(vera, undefined, "second-of-vera-2", "vera");
  await go(vera, "/people");
  await expect(vera.getByRole("tab", { name: "Roles" })).toBeVisible();
  for (const tab of ["Users", "Join tokens", "Members", "Audit log"])
    await expect(vera.getByRole("tab", { name: tab })).toHaveCount(0);
  await vera.close();
  await page.getByRole("button", { name: "Delete vera" }).click();
  await make("Delete");
  await expect(page.getByRole("button", { name: "Delete vera" })).toHaveCount(0);
});

test("a cluster is invited, with the command that joins it", async () => {
  await go(page, "/people?tab=tokens");
  await page.getByRole("button", { name: "New token" }).click();
  await make("Make");
  await expect(page.getByLabel("The command", { exact: true })).toContainText("skerry cluster");
  await accessible(page);
  await page.getByRole("button", { name: "I have stored it" }).click();
  await page
    .getByRole("button", { name: /^Delete token/ })
    .first()
    .click();
  await make("Delete");
  await go(page, "/people?tab=audit");
  await expect(page.getByText("create-token").first()).toBeVisible();
});

test("reports of benchmarks are opened, looked through and compared", async () => {
  await go(page, "/bench");
  await everybody(page, "bench-empty");
  const files = "src/bench/testdata/";
  await page
    .locator("input[type=file]")
    .setInputFiles([files + "report.json", files + "later.json", files + "changes.json"]);
  await expect(page.getByRole("alert").filter({ hasText: "changes.json is not a report" })).toBeVisible();
  await expect(page.getByRole("tab", { name: "report.json" })).toBeVisible();
  await everybody(page, "bench-report");
  await page.getByRole("tab", { name: "Compare" }).click();
  await expect(page.getByRole("heading", { name: "Changes" })).toBeVisible();
  await everybody(page, "bench-compare");
});

test("an image that is in use is not deleted, and the page says what uses it", async () => {
  await page.getByRole("link", { name: "Images" }).click();
  await expect(page.getByRole("heading", { name: "Images", level: 1 })).toBeVisible();
  const row = page.getByRole("row").filter({ hasText: "demo/web" }).first();
  await expect(row.getByRole("link", { name: "default/pair/buoy" })).toBeVisible();
  await row.getByRole("button", { name: "Delete demo/web:1" }).press("Enter");
  await expect(dialog().getByRole("checkbox", { name: "Delete it all the same" })).toBeVisible();
  await accessible(page);
  await make("Delete");
  await expect(page.getByText(/default\/pair\/buoy \(version \d+\) uses it/)).toBeVisible();
  await expect(row).toBeVisible();
});
