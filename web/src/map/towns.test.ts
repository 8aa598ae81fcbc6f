import { expect, test } from "vitest";
import { at, fit } from "./geometry";
import { townsIn } from "./towns";

const size = { w: 1000, h: 520 };

test("the whole world shows few towns, and a closer look more, none over another", () => {
  const world = townsIn(fit([], size), size, []);
  const [x, y] = at({ lat: 52, lon: 5 });
  const near = { k: 8, x: 500 - 8 * x, y: 260 - 8 * y };
  const europe = townsIn(near, size, []);
  expect(world.length).toBeGreaterThan(4);
  expect(world.length).toBeLessThan(60);
  expect(europe.map((t) => t.name)).toEqual(expect.arrayContaining(["Paris", "London", "Brussels"]));
  for (const [n, a] of europe.entries()) {
    expect(a.x).toBeGreaterThanOrEqual(0);
    for (const b of europe.slice(n + 1)) expect(Math.abs(a.y - b.y) >= 16 || Math.abs(a.x - b.x) > 16).toBe(true);
  }
});

test("a town gives way to a mark", () => {
  const [x, y] = at({ lat: 48.87, lon: 2.33 });
  const view = { k: 8, x: 500 - 8 * x, y: 260 - 8 * y };
  const names = (marks: { x: number; y: number }[]) => townsIn(view, size, marks).map((t) => t.name);
  expect(names([])).toContain("Paris");
  expect(names([{ x: 500, y: 260 }])).not.toContain("Paris");
});
