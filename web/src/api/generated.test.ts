// The client that openapi-fetch makes of the API's types, as docs/API.md shows it.
import createClient from "openapi-fetch";
import { expect, test } from "vitest";
import type { components, paths } from "./schema";

type Manifest = components["schemas"]["Manifest"];

const shop: Manifest = {
  apiVersion: "skerry/v1",
  kind: "Application",
  metadata: { name: "shop" },
  spec: { services: [{ name: "web", image: "my/app:1", replicas: 2 }] },
};

// What a manifest has not is found by the compiler.
// @ts-expect-error: there is no field replica
const misspelt: Manifest["spec"]["services"][0] = { name: "web", replica: 2 };
// @ts-expect-error: there is no such protocol
const unknown: components["schemas"]["ManifestPort"] = { port: 80, protocol: "icmp" };

/** server answers as a root does, and keeps what it was asked. */
function server(answers: Record<string, [number, unknown]>) {
  const asked: string[] = [];
  const client = createClient<paths>({
    baseUrl: "https://root:7480",
    fetch: async (request: Request) => {
      const url = new URL(request.url);
      asked.push(`${request.method} ${url.pathname}${url.search} ${await request.text()}`.trim());
      const [status, body] = answers[url.pathname + url.search] ?? [404, {}];
      return new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });
    },
  });
  return { client, asked };
}

test("a manifest with types is sent as it is", async () => {
  const { client, asked } = server({ "/v1/apps?dryRun=true": [200, { key: { namespace: "default", name: "shop" } }] });
  const { data, error } = await client.POST("/v1/apps", { params: { query: { dryRun: true } }, body: shop });
  expect(error).toBeUndefined();
  expect(data?.key.name).toBe("shop");
  expect(asked).toEqual([`POST /v1/apps?dryRun=true ${JSON.stringify(shop)}`]);
});

test("a list is asked for page by page", async () => {
  const { client } = server({
    "/v1/apps?limit=1": [200, { items: [{ key: { namespace: "default", name: "a" } }], continue: "x" }],
    "/v1/apps?limit=1&continue=x": [200, { items: [{ key: { namespace: "default", name: "b" } }] }],
  });
  const names: string[] = [];
  let token: string | undefined;
  do {
    const { data } = await client.GET("/v1/apps", { params: { query: { limit: 1, continue: token } } });
    names.push(...(data?.items ?? []).map((a) => a.key.name));
    token = data?.continue;
  } while (token);
  expect(names).toEqual(["a", "b"]);
});

test("a refusal has the type of problems", async () => {
  const { client } = server({
    "/v1/plan": [422, { code: "invalid", problems: [{ path: "spec", message: "is missing" }] }],
  });
  const { error } = await client.POST("/v1/plan", {
    body: { ...shop, spec: { services: [{ ...misspelt, ports: [unknown] }] } },
  });
  expect(error?.problems?.[0]?.path).toBe("spec");
});
