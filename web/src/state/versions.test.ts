import { expect, test } from "vitest";
import { changes, type Version } from "./versions";

const version = (generation: number, services: [string, string, string?][]): Version => ({
  generation,
  at: "2026-01-01T00:00:00Z",
  services: services.map(([name, revision, image]) => ({ name, revision, image })),
});

test("a version says what it changed", () => {
  const first = version(1, [
    ["web", "a", "my/web:1"],
    ["db", "b", "my/db:1"],
    ["old", "c", "my/old:1"],
  ]);
  const second = version(2, [
    ["web", "d", "my/web:2"],
    ["db", "e", "my/db:1"],
    ["cache", "f", "my/cache:1"],
  ]);
  expect(changes(second, first)).toEqual([
    "web: my/web:1 → my/web:2",
    "db: other settings, the same image",
    "cache is new",
    "old is gone",
  ]);
  expect(changes(first, undefined)).toEqual([]);
  expect(changes(first, first)).toEqual([]);
});
