import { at, type View } from "./geometry";
import list from "./towns.json";

// From Natural Earth's populated places at 1:110 million, which are in the public domain: name, latitude, longitude, and how far one
// has to look closer to see it (0: hardly).
const towns = (list as [string, number, number, number][]).map(([name, lat, lon, rank]) => {
  const [x, y] = at({ lat, lon });
  return { name, x, y, rank };
});

export interface Town {
  name: string;
  x: number;
  y: number;
}

const height = 16;
const width = (name: string) => 12 + 6.5 * name.length;

/** townsIn gives the towns to draw in a view, in pixels: the larger first, and none whose name would cover another's or a mark. */
export function townsIn(
  view: View,
  size: { w: number; h: number },
  marks: readonly { x: number; y: number }[],
): Town[] {
  const most = 2 * Math.log2(Math.max(1, view.k / fitted(size))) + 1;
  const out: Town[] = [];
  for (const town of towns) {
    const x = view.k * town.x + view.x;
    const y = view.k * town.y + view.y;
    if (town.rank > most || x < 0 || y < height || x + width(town.name) > size.w || y > size.h - height) continue;
    if (marks.some((m) => Math.abs(m.y - y) < 2 * height && m.x - x < width(town.name) + 20 && x - m.x < 140)) continue;
    if (out.some((o) => Math.abs(o.y - y) < height && o.x - x < width(town.name) + 4 && x - o.x < width(o.name) + 4))
      continue;
    out.push({ name: town.name, x, y });
  }
  return out;
}

/** fitted is the scale at which the whole world is seen. */
const fitted = (size: { w: number; h: number }) => Math.min(size.w / 1000, size.h / 520);
