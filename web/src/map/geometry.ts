import { type GeoPermissibleObjects, geoCircle, geoNaturalEarth1, geoPath } from "d3-geo";
import type { Location } from "../api/types";

/** The world is drawn once, this many units wide and high; a view then says what of it is seen. */
export const worldWidth = 1000;
export const worldHeight = 520;

const projection = geoNaturalEarth1().fitSize([worldWidth, worldHeight], { type: "Sphere" });
const path = geoPath(projection).digits(2);

/** outline gives the SVG path of something on the earth. */
export const outline = (o: GeoPermissibleObjects): string => path(o) ?? "";

/** at gives where a place is in the world's units. */
export function at(l: Location): [x: number, y: number] {
  return projection([l.lon, l.lat])!;
}

/** A degree of a great circle, in kilometres. */
const kmPerDegree = 40_030 / 360;

/** Beyond half of the way around the earth everything is inside. */
const everywhere = 20_015;

/** around gives the circle of a radius in kilometres, undefined if it holds nothing or the whole earth. */
export function around(l: Location, km: number): GeoPermissibleObjects | undefined {
  if (!(km > 0) || km >= everywhere) return undefined;
  return geoCircle()
    .center([l.lon, l.lat])
    .radius(km / kmPerDegree)();
}

/** extent gives the box of what is within a radius of a place, in the world's units. */
export function extent(l: Location, km: number): Box {
  const [x, y] = at(l);
  const c = around(l, km);
  if (!c) return { x0: x, y0: y, x1: x, y1: y };
  const [[x0, y0], [x1, y1]] = path.bounds(c);
  return { x0, y0, x1, y1 };
}

/**
 * Light goes 200 km in a millisecond in fibre, and a round trip goes there and back: this many kilometres for each
 * millisecond of it, at most.
 */
export const kmPerMs = 100;

/** reach tells how far away something can be, in kilometres, so that a round trip takes at most so many milliseconds. */
export const reach = (ms: number) => ms * kmPerMs;

const units: Record<string, number> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, µs: 1e-3, ns: 1e-6 };

/** milliseconds reads a span of time as manifests have it, such as 20ms or 1m30s; undefined if it is none. */
export function milliseconds(text: string | undefined): number | undefined {
  if (!text || !/^([0-9.]+(h|ms|m|s|us|µs|ns))+$/.test(text)) return undefined;
  let sum = 0;
  for (const m of text.matchAll(/([0-9.]+)(h|ms|m|s|us|µs|ns)/g)) sum += Number(m[1]) * units[m[2]!]!;
  return Number.isFinite(sum) ? sum : undefined;
}

export interface Box {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

export interface Size {
  w: number;
  h: number;
}

/** View says that the world's point p is seen at k * p + (x, y), in pixels. */
export interface View {
  k: number;
  x: number;
  y: number;
}

/** At the closest, a unit is this many pixels: a pixel is some 50 m. */
const closest = 800;
/** A fit shows at least this many units, some 1500 km, so that one place is seen with the coasts around it. */
const leastShown = 40;

export const whole: Box = { x0: 0, y0: 0, x1: worldWidth, y1: worldHeight };

/** widest is the scale at which the whole world is just seen. */
const widest = (s: Size) => Math.min(s.w / worldWidth, s.h / worldHeight);

/** settle keeps a view within its bounds: not too near nor too far, and never with nothing but emptiness in its middle. */
export function settle(v: View, s: Size): View {
  const k = Math.min(closest, Math.max(widest(s), v.k));
  const inside = (shift: number, size: number, world: number) => {
    const most = size / 2; // the world's first point may be in the middle at most, and its last at least
    return Math.min(most, Math.max(most - world * k, shift));
  };
  return { k, x: inside(v.x, s.w, worldWidth), y: inside(v.y, s.h, worldHeight) };
}

/** zoomed changes the scale while the point that is seen at (px, py) stays where it is. */
export function zoomed(v: View, s: Size, factor: number, px = s.w / 2, py = s.h / 2): View {
  const k = Math.min(closest, Math.max(widest(s), v.k * factor));
  const f = k / v.k;
  return settle({ k, x: px - (px - v.x) * f, y: py - (py - v.y) * f }, s);
}

/** panned moves what is seen by so many pixels. */
export const panned = (v: View, s: Size, dx: number, dy: number): View =>
  settle({ k: v.k, x: v.x + dx, y: v.y + dy }, s);

/** fit shows all boxes with some room around them, or the whole world if there are none. */
export function fit(boxes: readonly Box[], s: Size, least = leastShown): View {
  const b = boxes.length
    ? {
        x0: Math.min(...boxes.map((o) => o.x0)),
        y0: Math.min(...boxes.map((o) => o.y0)),
        x1: Math.max(...boxes.map((o) => o.x1)),
        y1: Math.max(...boxes.map((o) => o.y1)),
      }
    : whole;
  const room = boxes.length ? Math.min(48, s.w / 4, s.h / 4) : 0;
  const k = Math.min((s.w - 2 * room) / Math.max(least, b.x1 - b.x0), (s.h - 2 * room) / Math.max(least, b.y1 - b.y0));
  return settle({ k, x: s.w / 2 - (k * (b.x0 + b.x1)) / 2, y: s.h / 2 - (k * (b.y0 + b.y1)) / 2 }, s);
}

/** gather puts together what would lie on top of each other: what is nearer than so many pixels to the first of a group. */
export function gather<T extends { location: Location }>(
  list: readonly T[],
  v: View,
  near: number,
): { x: number; y: number; items: T[] }[] {
  const out: { x: number; y: number; items: T[] }[] = [];
  const cells = new Map<string, number[]>();
  for (const item of list) {
    const [wx, wy] = at(item.location);
    const x = v.k * wx + v.x;
    const y = v.k * wy + v.y;
    const cx = Math.floor(x / near);
    const cy = Math.floor(y / near);
    let home: number | undefined;
    for (let i = cx - 1; i <= cx + 1 && home === undefined; i++)
      for (let j = cy - 1; j <= cy + 1 && home === undefined; j++)
        home = cells.get(`${i},${j}`)?.find((n) => Math.hypot(out[n]!.x - x, out[n]!.y - y) < near);
    if (home !== undefined) {
      out[home]!.items.push(item);
      continue;
    }
    const key = `${cx},${cy}`;
    cells.set(key, [...(cells.get(key) ?? []), out.length]);
    out.push({ x, y, items: [item] });
  }
  return out;
}
