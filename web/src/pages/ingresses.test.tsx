import { expect, test } from "vitest";
import type { AppView } from "../api/types";
import { ways } from "./ingresses";

test("all ingresses are listed, by host, port and path", () => {
  const app = (name: string, ingress: object[]) =>
    ({
      key: { namespace: "default", name },
      services: [{ name: "web", ingress }, { name: "db" }],
    }) as unknown as AppView;
  const list = ways([
    app("shop", [{ host: "shop.example", listen: 443 }]),
    app("api", [
      { host: "api.example", listen: 8443, path: "/v2" },
      { host: "api.example", listen: 443 },
    ]),
    app("none", []),
  ]);
  expect(list.map((w) => `${w.app.key.name} ${w.way.host}:${w.way.listen}`)).toEqual([
    "api api.example:443",
    "api api.example:8443",
    "shop shop.example:443",
  ]);
});
