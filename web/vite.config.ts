import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { compress } from "./scripts/compress";

// SKERRY_SERVER leads the development server to a running root or cluster, such as that of `skerry up`.
const server = process.env.SKERRY_SERVER ?? "https://127.0.0.1:7480";

export default defineConfig({
  base: "/ui/",
  plugins: [react(), compress()],
  build: {
    outDir: "dist",
    emptyOutDir: false,
    sourcemap: false,
    target: "es2022",
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1200,
  },
  server: {
    proxy: { "/v1": { target: server, secure: false, ws: true }, "/schema": { target: server, secure: false } },
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/test-setup.ts"],
    css: false,
    testTimeout: 60_000,
    // One process and one document for all files, each of which cleans up after its tests: a third of the time.
    isolate: false,
    poolOptions: { forks: { singleFork: true } },
  },
});
