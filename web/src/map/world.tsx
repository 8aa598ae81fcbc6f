import { ActionIcon, Group, Text } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { type KeyboardEvent, memo, type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import { useNavigate } from "react-router-dom";
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import atlas from "world-atlas/countries-110m.json";
import type { Location } from "../api/types";
import { count } from "../format";
import { IconFocus2, IconMinus, IconPlus, IconWorld } from "../icons";
import { around, at, type Box, extent, fit, gather, outline, panned, settle, type View, zoomed } from "./geometry";
import type { Held, Mark, Near } from "./places";
import { townsIn } from "./towns";

const topology = atlas as unknown as Topology<{ countries: GeometryCollection; land: GeometryCollection }>;
const land = outline(feature(topology, topology.objects.land));
const borders = outline(mesh(topology, topology.objects.countries, (a, b) => a !== b));
const sphere = outline({ type: "Sphere" });

/** Ground is what never changes: sea, land and borders. */
const Ground = memo(function Ground() {
  return (
    <>
      <path d={sphere} className="map-sea" />
      <path d={land} className="map-land" />
      <path d={borders} className="map-border" />
    </>
  );
});

/** near is how close marks may come, in pixels, before they are drawn as one. */
const near = 30;
const step = 80;

type Placed = Mark & { location: NonNullable<Mark["location"]> };

/** World draws marks and circles on a map of the world that can be zoomed and moved. What it shows is told in tables beside it. */
export function World({
  marks,
  circles,
  held,
  noun,
}: {
  marks: readonly Mark[];
  circles: readonly Near[];
  held: Map<string, Held> | null;
  noun: string;
}) {
  const { ref, width, height } = useElementSize();
  const size = useMemo(() => ({ w: width || 1, h: height || 1 }), [width, height]);
  const go = useNavigate();
  const [moved, setMoved] = useState<View | null>(null);
  const placed = useMemo(() => marks.filter((m): m is Placed => m.location !== undefined), [marks]);
  const drawn = useMemo(
    () => circles.flatMap((c) => (c.location ? [{ ...c, d: outlineOf(c.location, c.km) }] : [])),
    [circles],
  );
  const users = useMemo(() => {
    const by = new Map<string, [Location, string[]]>();
    for (const c of circles) {
      if (!c.location) continue;
      const key = `${c.location.lat},${c.location.lon}`;
      const old = by.get(key)?.[1] ?? [];
      by.set(key, [c.location, [...old, `${c.service} ≤ ${c.limit}`]]);
    }
    return [...by].map(
      ([key, [location, texts]]) =>
        [key, location, texts.length > 2 ? count(texts.length, "limit") : texts.join(", ")] as const,
    );
  }, [circles]);
  const boxes = useMemo<Box[]>(
    () => [...placed.map((m) => extent(m.location, m.radiusKm)), ...drawn.map((c) => extent(c.location!, c.km))],
    [placed, drawn],
  );
  const view = useMemo(() => (moved ? settle(moved, size) : fit(boxes, size)), [moved, size, boxes]);
  const now = useRef(view);
  now.current = view;
  const change = (next: (v: View) => View) => {
    now.current = next(now.current);
    setMoved(now.current);
  };

  // What a wheel does can be prevented only by a listener that says so beforehand.
  const frame = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const el = frame.current;
    if (!el) return;
    const wheel = (e: WheelEvent) => {
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== el) return; // the page is scrolled
      e.preventDefault();
      const box = el.getBoundingClientRect();
      change((v) =>
        zoomed(v, size, Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.002)), e.clientX - box.left, e.clientY - box.top),
      );
    };
    el.addEventListener("wheel", wheel, { passive: false });
    return () => el.removeEventListener("wheel", wheel);
  }, [size]);

  const pointers = useRef(new Map<number, { x: number; y: number }>());
  const dragged = useRef(0);
  const down = (e: PointerEvent) => {
    if (e.button !== 0) return;
    if (pointers.current.size === 0) dragged.current = 0;
    pointers.current.set(e.pointerId, { x: e.clientX, y: e.clientY });
  };
  const move = (e: PointerEvent) => {
    const was = pointers.current.get(e.pointerId);
    if (!was) return;
    const other = [...pointers.current].find(([id]) => id !== e.pointerId)?.[1];
    const box = frame.current!.getBoundingClientRect();
    const dx = e.clientX - was.x;
    const dy = e.clientY - was.y;
    pointers.current.set(e.pointerId, { x: e.clientX, y: e.clientY });
    dragged.current += Math.hypot(dx, dy);
    if (dragged.current > 4 && !frame.current!.hasPointerCapture(e.pointerId))
      frame.current!.setPointerCapture(e.pointerId);
    if (other) {
      const before = Math.hypot(was.x - other.x, was.y - other.y) || 1;
      const after = Math.hypot(e.clientX - other.x, e.clientY - other.y) || 1;
      change((v) =>
        zoomed(v, size, after / before, (e.clientX + other.x) / 2 - box.left, (e.clientY + other.y) / 2 - box.top),
      );
    } else change((v) => panned(v, size, dx, dy));
  };
  const up = (e: PointerEvent) => pointers.current.delete(e.pointerId);
  /** unlessDragged keeps the end of a drag from being a click. */
  const unlessDragged = (fn: () => void) => () => {
    if (dragged.current <= 4) fn();
  };

  const keys: Record<string, (v: View) => View> = {
    ArrowLeft: (v) => panned(v, size, step, 0),
    ArrowRight: (v) => panned(v, size, -step, 0),
    ArrowUp: (v) => panned(v, size, 0, step),
    ArrowDown: (v) => panned(v, size, 0, -step),
    "+": (v) => zoomed(v, size, 1.5),
    "=": (v) => zoomed(v, size, 1.5),
    "-": (v) => zoomed(v, size, 1 / 1.5),
  };
  const press = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "0") setMoved(null);
    else if (keys[e.key]) change(keys[e.key]!);
    else return;
    e.preventDefault();
  };

  const groups = gather(placed, view, near);
  const towns = townsIn(view, size, groups);
  return (
    <div className="map">
      <Group className="map-tools" gap={4}>
        <ActionIcon variant="default" size="lg" aria-label="Zoom in" onClick={() => change(keys["+"]!)}>
          <IconPlus size={18} aria-hidden />
        </ActionIcon>
        <ActionIcon variant="default" size="lg" aria-label="Zoom out" onClick={() => change(keys["-"]!)}>
          <IconMinus size={18} aria-hidden />
        </ActionIcon>
        <ActionIcon variant="default" size="lg" aria-label="Show all" onClick={() => setMoved(null)}>
          <IconFocus2 size={18} aria-hidden />
        </ActionIcon>
        <ActionIcon
          variant="default"
          size="lg"
          aria-label="Show the whole world"
          onClick={() => setMoved(fit([], size))}
        >
          <IconWorld size={18} aria-hidden />
        </ActionIcon>
      </Group>
      <div
        ref={frame}
        className="map-frame"
        tabIndex={0}
        role="application"
        aria-label={`Map of the world with ${count(placed.length, noun)}`}
        aria-describedby="map-help"
        onKeyDown={press}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerCancel={up}
      >
        <div ref={ref} style={{ width: "100%", height: "100%" }}>
          {width > 0 && (
            <svg width={width} height={height} aria-hidden focusable="false">
              <g transform={`translate(${view.x} ${view.y}) scale(${view.k})`}>
                <Ground />
                {placed.map((m) => (
                  <path key={m.name} d={outlineOf(m.location, m.radiusKm)} className="map-area" />
                ))}
                {drawn.map((c, n) => (
                  <path key={n} d={c.d} className={"map-limit map-" + c.kind}>
                    <title>{`${c.service}: at most ${c.limit} from ${c.whom}`}</title>
                  </path>
                ))}
              </g>
              {towns.map((t) => (
                <g key={t.name} transform={`translate(${t.x} ${t.y})`} className="map-town">
                  <circle r={2} />
                  <text x={5} y={4}>
                    {t.name}
                  </text>
                </g>
              ))}
              {users.map(([key, location, text]) => {
                const [x, y] = at(location);
                return (
                  <g
                    key={key}
                    transform={`translate(${view.k * x + view.x} ${view.k * y + view.y})`}
                    className="map-user"
                  >
                    <path d="M-5 0H5M0 -5V5" />
                    <text x={-9} y={4} textAnchor="end" className="map-label map-sub">
                      {text}
                    </text>
                  </g>
                );
              })}
              {groups.map((g) => (
                <Marker
                  key={g.items[0]!.name}
                  x={g.x}
                  y={g.y}
                  items={g.items}
                  held={held}
                  noun={noun}
                  open={unlessDragged(() =>
                    g.items.length === 1
                      ? go(g.items[0]!.to)
                      : setMoved(
                          fit(
                            g.items.map((m) => extent(m.location, 0)),
                            size,
                            0.1,
                          ),
                        ),
                  )}
                />
              ))}
            </svg>
          )}
        </div>
      </div>
      <Text size="xs" c="dimmed" id="map-help" mt={4}>
        Drag to move, pinch or Ctrl and wheel to zoom. With the keyboard: arrows, + and −, 0 for all. The tables below
        tell the same.
      </Text>
    </div>
  );
}

const outlineOf = (l: NonNullable<Mark["location"]>, km: number) => {
  const c = around(l, km);
  return c ? outline(c) : "";
};

/** Marker is one cluster or worker, or several that are too close for two marks. Its shape tells whether it is in touch. */
function Marker({
  x,
  y,
  items,
  held,
  noun,
  open,
}: {
  x: number;
  y: number;
  items: readonly Placed[];
  held: Map<string, Held> | null;
  noun: string;
  open: () => void;
}) {
  const one = items.length === 1 ? items[0]! : null;
  const bad = items.filter((m) => m.state !== "Connected").length;
  const there = held
    ? items.reduce((n, m) => n + (held.get(m.name)?.there ?? 0), 0)
    : items.reduce((n, m) => n + m.instances, 0);
  const empty = held !== null && there === 0;
  const title = one ? one.name : count(items.length, noun);
  const sub = (bad > 0 ? (one ? one.state : `${bad} not in order`) + ", " : "") + count(there, "instance");
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the list beside the map does the same by the keyboard
    <g
      transform={`translate(${x} ${y})`}
      className={"map-mark" + (bad ? " map-bad" : "") + (empty ? " map-empty" : "")}
      onClick={open}
    >
      <title>{`${items
        .map((m) => m.name)
        .slice(0, 20)
        .join(", ")}: ${sub}`}</title>
      <circle r={12} className="map-hit" />
      {bad ? (
        <path d="M0 -10L10 0L0 10L-10 0Z" className="map-dot" />
      ) : (
        <circle r={items.length > 1 ? 10 : 7} className="map-dot" />
      )}
      {items.length > 1 && (
        <text textAnchor="middle" y={4} className="map-number">
          {items.length}
        </text>
      )}
      <text x={15} y={0} className="map-label">
        {title}
        <tspan x={15} dy={14} className="map-sub">
          {sub}
        </tspan>
      </text>
    </g>
  );
}
