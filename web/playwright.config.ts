import { defineConfig } from "@playwright/test";

// What is tried is a real Skerry, which e2e.TestDashboard starts and names in the environment.
export default defineConfig({
  testDir: "e2e",
  testIgnore: "firefox.spec.ts",
  outputDir: process.env.SKERRY_RESULTS ?? "test-results",
  workers: 1,
  // A browser that is starved beside other tests is waited for; only one that stands still fails.
  timeout: 900_000,
  expect: { timeout: 300_000 },
  use: {
    ignoreHTTPSErrors: true,
    actionTimeout: 300_000,
    navigationTimeout: 300_000,
    viewport: { width: 1280, height: 900 },
    launchOptions: {
      executablePath: process.env.CHROMIUM,
      args: ["--no-sandbox", "--disable-dev-shm-usage"],
    },
    screenshot: "only-on-failure",
  },
});
