import { geoDistance } from "d3-geo";
import { expect, test } from "vitest";
import {
  around,
  at,
  extent,
  fit,
  gather,
  milliseconds,
  panned,
  reach,
  settle,
  type View,
  worldHeight,
  worldWidth,
  zoomed,
} from "./geometry";

const size = { w: 800, h: 400 };
const kiel = { lat: 54.32, lon: 10.14 };
const lisbon = { lat: 38.72, lon: -9.14 };
const seen = (v: View, l: { lat: number; lon: number }) =>
  at(l).map((c, i) => v.k * c + (i ? v.y : v.x)) as [number, number];

test("places lie where they do on the earth", () => {
  const [x, y] = at({ lat: 0, lon: 0 });
  expect(x).toBeCloseTo(worldWidth / 2);
  expect(y).toBeCloseTo(worldHeight / 2);
  expect(at(lisbon)[0]).toBeLessThan(at(kiel)[0]);
  expect(at(lisbon)[1]).toBeGreaterThan(at(kiel)[1]);
});

test("each point of a circle is its radius away", () => {
  const c = around(kiel, 500) as unknown as { coordinates: [number, number][][] };
  for (const p of c.coordinates[0]!) expect(geoDistance([kiel.lon, kiel.lat], p) * 6371).toBeCloseTo(500, -1);
  expect(around(kiel, 0)).toBeUndefined();
  expect(around(kiel, 21_000)).toBeUndefined();
  const b = extent(kiel, 500);
  expect(b.x0).toBeLessThan(at(kiel)[0]);
  expect(b.x1).toBeGreaterThan(at(kiel)[0]);
});

test("a round trip reaches 100 km for each millisecond", () => {
  expect(reach(milliseconds("20ms")!)).toBe(2000);
  expect(milliseconds("1m30s")).toBe(90_000);
  expect(milliseconds("1.5s")).toBe(1500);
  expect(milliseconds("500us")).toBe(0.5);
  expect(milliseconds("20")).toBeUndefined();
  expect(milliseconds("soon")).toBeUndefined();
  expect(milliseconds(undefined)).toBeUndefined();
});

test("a fit shows everything, and one place with its surroundings", () => {
  const v = fit([extent(kiel, 300), extent(lisbon, 0)], size);
  for (const l of [kiel, lisbon]) {
    const [x, y] = seen(v, l);
    expect(x > 0 && x < size.w && y > 0 && y < size.h).toBe(true);
  }
  const one = fit([extent(kiel, 0)], size);
  expect(size.w / one.k).toBeGreaterThanOrEqual(40);
  expect(seen(one, kiel)[0]).toBeCloseTo(size.w / 2);
  expect(fit([], size).k).toBeCloseTo(Math.min(size.w / worldWidth, size.h / worldHeight));
});

test("zooming leaves the point under the pointer where it is", () => {
  const v = fit([extent(kiel, 300), extent(lisbon, 300)], size);
  const [x, y] = seen(v, lisbon);
  const z = zoomed(v, size, 2, x, y);
  expect(z.k).toBeCloseTo(v.k * 2);
  expect(seen(z, lisbon)[0]).toBeCloseTo(x);
  expect(seen(z, lisbon)[1]).toBeCloseTo(y);
});

test("a view stays within its bounds", () => {
  const v = fit([], size);
  expect(zoomed(v, size, 0.1)).toEqual(settle(v, size));
  expect(zoomed(v, size, 1e6).k).toBe(800);
  const far = panned(zoomed(v, size, 8), size, 1e6, -1e6);
  expect(far.x).toBe(size.w / 2);
  expect(far.y).toBe(size.h / 2 - worldHeight * far.k);
});

test("what would lie on top of each other is put together, and comes apart when zoomed", () => {
  const list = [kiel, { lat: 54.4, lon: 10.2 }, lisbon].map((location) => ({ location }));
  const v = fit([], size);
  expect(gather(list, v, 20).map((g) => g.items.length)).toEqual([2, 1]);
  expect(gather(list, zoomed(v, size, 200), 20)).toHaveLength(3);
});
