import {
  Accordion,
  ActionIcon,
  Badge,
  Box,
  Button,
  Fieldset,
  Group,
  NumberInput,
  Select,
  SimpleGrid,
  Stack,
  Text,
  Textarea,
  TextInput,
} from "@mantine/core";
import { memo, type ReactNode, useEffect, useState } from "react";
import { IconPlus, IconTrash } from "../icons";
import { type Path, pathText } from "./document";
import { blank, editable, groups, kindOf, labelOf, resolve, type Schema } from "./schema";

export interface FormContext {
  root: Schema;
  /** errors are by path, as pathText writes it. */
  errors: ReadonlyMap<string, string>;
  /** suggestions are values that a text field offers, by the last part of its path. */
  suggestions: Record<string, string[]>;
  set(path: Path, value: unknown): void;
}

interface FieldProps {
  c: FormContext;
  name: string;
  schema: Schema;
  path: Path;
  value: unknown;
  required?: boolean;
  /** remove takes the value out of the list that it is in. */
  remove?: () => void;
}

/** Field lets one value be entered, by what its schema says. */
export function Field(p: FieldProps) {
  const s = resolve(p.c.root, p.schema);
  const text = pathText(p.path);
  const common = {
    label: labelOf(p.name),
    description: s.description,
    required: p.required,
    error: p.c.errors.get(text),
    "data-path": text,
  };
  const set = (v: unknown) => p.c.set(p.path, v);
  switch (kindOf(s)) {
    case "choice":
      return (
        <Select
          {...common}
          data={s.enum!}
          value={typeof p.value === "string" ? p.value : null}
          placeholder="Default"
          clearable={!p.required}
          clearButtonProps={{ "aria-label": "Default" }}
          onChange={(v) => set(v ?? undefined)}
        />
      );
    case "boolean":
      return (
        <Select
          {...common}
          data={[
            { value: "true", label: "Yes" },
            { value: "false", label: "No" },
          ]}
          value={typeof p.value === "boolean" ? String(p.value) : null}
          placeholder="Default"
          clearable
          clearButtonProps={{ "aria-label": "Default" }}
          onChange={(v) => set(v === null ? undefined : v === "true")}
        />
      );
    case "integer":
    case "number":
      return (
        <NumberInput
          {...common}
          value={typeof p.value === "number" ? p.value : typeof p.value === "string" ? p.value : ""}
          min={s.minimum}
          max={s.maximum}
          clampBehavior="none"
          allowDecimal={kindOf(s) === "number"}
          hideControls
          onChange={(v) => set(v === "" ? undefined : v)}
        />
      );
    case "amount":
      return (
        <TextField
          {...common}
          value={p.value}
          onChange={(v) => set(v === "" ? undefined : /^\d+(\.\d+)?$/.test(v) ? Number(v) : v)}
        />
      );
    case "mixed":
      return (
        <TextField
          {...common}
          value={p.value !== null && typeof p.value === "object" ? JSON.stringify(p.value) : p.value}
          onChange={(v) => set(v === "" ? undefined : mixed(v))}
        />
      );
    case "text": {
      const list = p.c.suggestions[String(p.path.at(-1))];
      return (
        <TextField
          {...common}
          long={p.name === "content"}
          list={list}
          value={p.value}
          onChange={(v) => set(v === "" && !p.required ? undefined : v)}
        />
      );
    }
    case "texts":
      return <Texts {...p} schema={s} />;
    case "map":
      return <Map_ {...p} schema={s} />;
    case "list":
      return <List {...p} schema={s} />;
    case "object":
      return <Object_ {...p} schema={s} />;
  }
}

/** mixed reads a value that may be a word or an object written as JSON. */
function mixed(v: string): unknown {
  if (v.trim().startsWith("{")) {
    try {
      return JSON.parse(v);
    } catch {
      // not yet whole
    }
  }
  return v;
}

/** TextField keeps what is typed to itself until it is known elsewhere, so that the cursor stays where it is. */
function TextField({
  value,
  onChange,
  long,
  list,
  ...rest
}: {
  label: string;
  description?: string;
  required?: boolean;
  error?: string;
  value: unknown;
  long?: boolean;
  list?: string[];
  onChange(v: string): void;
}) {
  const outside = value === undefined || value === null ? "" : String(value);
  const [text, setText] = useState(outside);
  useEffect(() => setText(outside), [outside]);
  const change = (v: string) => {
    setText(v);
    onChange(v);
  };
  if (long || outside.includes("\n"))
    return (
      <Textarea
        {...rest}
        autosize
        minRows={long ? 3 : 1}
        maxRows={16}
        value={text}
        className="mono"
        onChange={(e) => change(e.currentTarget.value)}
      />
    );
  const id = list && "list-" + rest.label;
  return (
    <>
      <TextInput {...rest} value={text} list={id} onChange={(e) => change(e.currentTarget.value)} />
      {list && (
        <datalist id={id}>
          {list.map((x) => (
            <option key={x} value={x} />
          ))}
        </datalist>
      )}
    </>
  );
}

function Frame({
  p,
  children,
  empty,
  onAdd,
  addLabel,
}: {
  p: FieldProps;
  children?: ReactNode;
  empty: boolean;
  onAdd(): void;
  addLabel: string;
}) {
  const label = labelOf(p.name);
  const error = p.c.errors.get(pathText(p.path));
  return (
    <Fieldset
      legend={
        <Text fw={500} size="sm">
          {label}
          {p.required && " *"}
        </Text>
      }
      data-path={pathText(p.path)}
      styles={{ root: { minWidth: 0 } }}
    >
      <Stack gap="xs">
        {resolve(p.c.root, p.schema).description && (
          <Text size="xs" c="dimmed">
            {resolve(p.c.root, p.schema).description}
          </Text>
        )}
        {error && (
          <Text size="xs" c="var(--mantine-color-error)" role="alert">
            {error}
          </Text>
        )}
        {children}
        <Group gap="xs">
          <Button size="compact-sm" variant="default" leftSection={<IconPlus size={14} aria-hidden />} onClick={onAdd}>
            {addLabel}
          </Button>
          {!empty && !p.required && (
            <Button size="compact-sm" variant="subtle" color="red" onClick={() => p.c.set(p.path, undefined)}>
              Remove {label.toLowerCase()}
            </Button>
          )}
        </Group>
      </Stack>
    </Fieldset>
  );
}

function Texts(p: FieldProps) {
  const list = Array.isArray(p.value) ? (p.value as unknown[]) : [];
  const label = labelOf(p.name);
  return (
    <Frame
      p={p}
      empty={list.length === 0}
      addLabel={"Add to " + label.toLowerCase()}
      onAdd={() => p.c.set([...p.path, list.length], "")}
    >
      {list.map((v, i) => (
        <Group key={i} gap="xs" wrap="nowrap" align="flex-start">
          <Textarea
            autosize
            minRows={1}
            maxRows={12}
            style={{ flex: 1 }}
            className="mono"
            aria-label={`${label} ${i + 1}`}
            value={v === null ? "" : String(v)}
            error={p.c.errors.get(pathText([...p.path, i]))}
            onChange={(e) => p.c.set([...p.path, i], e.currentTarget.value)}
          />
          <Remove
            label={`Remove ${label.toLowerCase()} ${i + 1}`}
            onClick={() => p.c.set(list.length === 1 ? p.path : [...p.path, i], undefined)}
          />
        </Group>
      ))}
    </Frame>
  );
}

function Map_(p: FieldProps) {
  const map = p.value !== null && typeof p.value === "object" ? (p.value as Record<string, unknown>) : {};
  const keys = Object.keys(map);
  const label = labelOf(p.name);
  const rename = (from: string, to: string) =>
    p.c.set(p.path, Object.fromEntries(Object.entries(map).map(([k, v]) => [k === from ? to : k, v])));
  return (
    <Frame
      p={p}
      empty={keys.length === 0}
      addLabel={"Add to " + label.toLowerCase()}
      onAdd={() => {
        let k = "NAME";
        for (let n = 2; k in map; n++) k = "NAME" + n;
        p.c.set([...p.path, k], "");
      }}
    >
      {keys.map((k, i) => (
        <Group key={i} gap="xs" wrap="nowrap" align="flex-start">
          <KeyInput label={`${label}: name ${i + 1}`} value={k} taken={keys} onChange={(to) => rename(k, to)} />
          <Textarea
            autosize
            minRows={1}
            maxRows={8}
            style={{ flex: 1 }}
            className="mono"
            aria-label={`${label}: value of ${k}`}
            value={map[k] === null ? "" : String(map[k])}
            error={p.c.errors.get(pathText([...p.path, k]))}
            onChange={(e) => p.c.set([...p.path, k], e.currentTarget.value)}
          />
          <Remove
            label={`Remove ${k}`}
            onClick={() => p.c.set(keys.length === 1 ? p.path : [...p.path, k], undefined)}
          />
        </Group>
      ))}
    </Frame>
  );
}

/** KeyInput takes a name over when it is left: until then two may be alike. */
function KeyInput({
  label,
  value,
  taken,
  onChange,
}: {
  label: string;
  value: string;
  taken: string[];
  onChange(v: string): void;
}) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const bad = text !== value && (text === "" || taken.includes(text));
  return (
    <TextInput
      w={180}
      className="mono"
      aria-label={label}
      value={text}
      error={bad ? "in use" : undefined}
      onChange={(e) => setText(e.currentTarget.value)}
      onBlur={() => (bad ? setText(value) : text !== value && onChange(text))}
    />
  );
}

function List(p: FieldProps) {
  const list = Array.isArray(p.value) ? (p.value as unknown[]) : [];
  const item = p.schema.items ?? {};
  const label = labelOf(p.name);
  return (
    <Frame
      p={p}
      empty={list.length === 0}
      addLabel={"Add to " + label.toLowerCase()}
      onAdd={() => p.c.set([...p.path, list.length], blank(p.c.root, item))}
    >
      {list.map((v, i) => (
        <Object_
          key={i}
          c={p.c}
          name={`${p.name} ${i + 1}`}
          schema={resolve(p.c.root, item)}
          path={[...p.path, i]}
          value={v}
          remove={() => p.c.set(list.length === 1 ? p.path : [...p.path, i], undefined)}
        />
      ))}
    </Frame>
  );
}

function Object_(p: FieldProps) {
  const s = resolve(p.c.root, p.schema);
  const label = labelOf(p.name);
  const error = p.c.errors.get(pathText(p.path));
  const has = p.value !== undefined;
  const o = p.value !== null && typeof p.value === "object" ? (p.value as Record<string, unknown>) : {};
  if (!has && !p.required)
    return (
      <Box data-path={pathText(p.path)}>
        <Button
          size="compact-sm"
          variant="default"
          leftSection={<IconPlus size={14} aria-hidden />}
          onClick={() => p.c.set(p.path, blank(p.c.root, s))}
          aria-label={"Add " + label.toLowerCase()}
        >
          {label}
        </Button>
        {s.description && (
          <Text size="xs" c="dimmed" mt={4}>
            {s.description}
          </Text>
        )}
      </Box>
    );
  return (
    <Fieldset
      legend={
        <Text fw={500} size="sm">
          {label}
        </Text>
      }
      data-path={pathText(p.path)}
      styles={{ root: { minWidth: 0 } }}
    >
      <Stack gap="xs">
        {s.description && !p.remove && (
          <Text size="xs" c="dimmed">
            {s.description}
          </Text>
        )}
        {error && (
          <Text size="xs" c="var(--mantine-color-error)" role="alert">
            {error}
          </Text>
        )}
        <Fields c={p.c} schema={s} path={p.path} value={o} />
        <Group>
          <Button
            size="compact-sm"
            variant="subtle"
            color="red"
            leftSection={<IconTrash size={14} aria-hidden />}
            onClick={p.remove ?? (() => p.c.set(p.path, undefined))}
          >
            Remove {label.toLowerCase()}
          </Button>
        </Group>
      </Stack>
    </Fieldset>
  );
}

function Remove({ label, onClick }: { label: string; onClick(): void }) {
  return (
    <ActionIcon variant="subtle" color="red" size={36} aria-label={label} onClick={onClick}>
      <IconTrash size={16} aria-hidden />
    </ActionIcon>
  );
}

/** Fields are those of an object: plain values side by side, what has parts below each other. */
export function Fields({
  c,
  schema,
  path,
  value,
  only,
}: {
  c: FormContext;
  schema: Schema;
  path: Path;
  value: Record<string, unknown>;
  only?: string[];
}) {
  const s = resolve(c.root, schema);
  const names =
    only ??
    editable(s).sort((a, b) => Number(s.required?.includes(b) ?? false) - Number(s.required?.includes(a) ?? false));
  const plain = names.filter(
    (n) => !["object", "list", "map", "texts"].includes(kindOf(resolve(c.root, s.properties![n]!))),
  );
  const deep = names.filter((n) => !plain.includes(n));
  const field = (n: string) => (
    <Field
      key={n}
      c={c}
      name={n}
      schema={s.properties![n]!}
      path={[...path, n]}
      value={value[n]}
      required={s.required?.includes(n)}
    />
  );
  return (
    <Stack gap="sm">
      {plain.length > 0 && <SimpleGrid cols={{ base: 1, sm: 2 }}>{plain.map(field)}</SimpleGrid>}
      {deep.map(field)}
    </Stack>
  );
}

/** ServiceForm has a field for everything that a service may say. */
export const ServiceForm = memo(function ServiceForm({
  c,
  service,
  path,
  value,
}: {
  c: FormContext;
  service: Schema;
  path: Path;
  value: Record<string, unknown>;
}) {
  const [open, setOpen] = useState<string[]>(["group-0"]);
  const prefix = pathText(path);
  return (
    <Accordion multiple value={open} onChange={setOpen} variant="separated" order={3}>
      {groups(service).map((g, n) => {
        const id = "group-" + n; // it becomes a part of an element's id
        const wrong = [...c.errors.keys()].filter((e) =>
          g.fields.some(
            (f) => e === `${prefix}.${f}` || e.startsWith(`${prefix}.${f}.`) || e.startsWith(`${prefix}.${f}[`),
          ),
        ).length;
        const set = g.fields.filter((f) => value[f] !== undefined).length;
        return (
          <Accordion.Item key={id} value={id}>
            <Accordion.Control>
              <Group gap="xs">
                {g.title}
                {set > 0 && (
                  <Badge variant="default" size="sm" tt="none">
                    {set} set
                  </Badge>
                )}
                {wrong > 0 && (
                  <Badge color="red" size="sm" tt="none" variant="light">
                    {wrong} wrong
                  </Badge>
                )}
              </Group>
            </Accordion.Control>
            <Accordion.Panel>
              {open.includes(id) && <Fields c={c} schema={service} path={path} value={value} only={g.fields} />}
            </Accordion.Panel>
          </Accordion.Item>
        );
      })}
    </Accordion>
  );
});
