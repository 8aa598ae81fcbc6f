import type { ServiceModel } from "./document";

export interface Point {
  x: number;
  y: number;
}

const width = 340;
const height = 120;
/** shift moves every second column down, so that an arrow over a column does not run through what stands there. */
const shift = 60;

/** layout puts who talks to others to the left of those: the column is the longest way from a service that nobody calls. */
export function layout(services: ServiceModel[]): Map<string, Point> {
  const names = services.map((s) => s.name ?? "");
  const column = new Map(names.map((n) => [n, 0]));
  // As many rounds as there are services reach the end of the longest way; a circle would go on for ever.
  for (let round = 0; round < services.length; round++) {
    let moved = false;
    for (const s of services)
      for (const l of s.links ?? []) {
        const at = column.get(s.name ?? "")! + 1;
        if (l && column.has(l.service) && column.get(l.service)! < at && at < services.length) {
          column.set(l.service, at);
          moved = true;
        }
      }
    if (!moved) break;
  }
  const rows = new Map<number, number>();
  const out = new Map<string, Point>();
  for (const n of names) {
    const x = column.get(n)!;
    const y = rows.get(x) ?? 0;
    rows.set(x, y + 1);
    out.set(n, { x: x * width, y: y * height + (x % 2) * shift });
  }
  return out;
}
