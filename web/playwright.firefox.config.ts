import { defineConfig } from "@playwright/test";
import common from "./playwright.config";

// Debian's Firefox, over WebDriver BiDi: the browser that Playwright calls firefox is a build of its own. It is run by
// e2e.TestDashboardInFirefox.
export default defineConfig({
  ...common,
  testIgnore: [],
  testMatch: "firefox.spec.ts",
  use: {
    ...common.use,
    browserName: "_bidiFirefox" as "firefox",
    launchOptions: { executablePath: process.env.FIREFOX },
  },
});
