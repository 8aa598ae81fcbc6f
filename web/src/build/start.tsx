import { Button, Group, NumberInput, Stack, Text } from "@mantine/core";
import { Panel } from "../parts/basics";
import { type Manifest, type Path, pathText } from "./document";
import { Fields, type FormContext } from "./form";
import type { Schema } from "./schema";

/** Start is how a new application begins: the few fields that most need, beside the YAML that they make. */
export function Start({ c, m, service, onMore }: { c: FormContext; m: Manifest; service: Schema; onMore(): void }) {
  const first = m.services[0];
  const at: Path = ["spec", "services", 0];
  const port: Path = [...at, "ports", 0, "port"];
  const ports = Array.isArray(first?.ports) ? (first.ports as { port?: number }[]) : [];
  return (
    <Panel title="What should run?">
      <Stack>
        <Text size="sm">
          One service is enough to begin with. What you enter here is written into the YAML, and the other way round.
        </Text>
        <Fields
          c={c}
          schema={{ $ref: "#/$defs/Metadata" }}
          path={["metadata"]}
          value={(m.model.metadata ?? {}) as Record<string, unknown>}
          only={["name"]}
        />
        <Fields c={c} schema={service} path={at} value={first ?? {}} only={["image", "replicas"]} />
        <NumberInput
          label="Port"
          description="Port that the program listens on, if it does. Other services reach it there by the service’s name."
          min={1}
          max={65535}
          allowDecimal={false}
          value={ports[0]?.port ?? ""}
          error={c.errors.get(pathText(port))}
          onChange={(n) =>
            n === "" ? c.set(ports.length > 1 ? port : [...at, "ports"], undefined) : c.set(port, Number(n))
          }
        />
        <Group justify="space-between">
          <Text size="sm" c="dimmed">
            Commands, volumes, probes, links between services and the rest:
          </Text>
          <Button variant="default" onClick={onMore}>
            All fields
          </Button>
        </Group>
      </Stack>
    </Panel>
  );
}
