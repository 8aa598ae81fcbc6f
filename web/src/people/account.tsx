import { Button, Code, List as Items, MultiSelect, PasswordInput, Select, Stack, Text, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import type { components } from "../api/schema";
import type { List } from "../api/types";
import { clock } from "../format";
import { Loaded, Panel, Problem, useActs } from "../parts/basics";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { Copyable, Form, Once, Rows } from "./parts";
import { grantWords, lives, scopeWords, until } from "./words";

type AccessToken = components["schemas"]["AccessToken"];
type TOTPSecret = components["schemas"]["TOTPSecret"];
type RecoveryCodes = components["schemas"]["RecoveryCodes"];
type NewAccessToken = components["schemas"]["NewAccessToken"];

/** Account is about whoever is logged in. */
export function Account() {
  const { who } = useSession();
  return (
    <Stack>
      <Panel title={`You are ${who?.user}`}>
        <Items size="sm">
          {(who?.grants ?? []).map((g) => (
            <Items.Item key={grantWords(g)}>{grantWords(g)}</Items.Item>
          ))}
        </Items>
        {!who?.grants?.length && <Text size="sm">Nothing has been granted to you yet; an admin can do that.</Text>}
      </Panel>
      <Password />
      <OneTimeCodes />
      <AccessTokens />
    </Stack>
  );
}

function Password() {
  const { client } = useSession();
  const { say } = useActs();
  const [old, setOld] = useState("");
  const [next, setNext] = useState("");
  const [again, setAgain] = useState("");
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const differ = again !== "" && again !== next;
  const toggle = { "aria-label": "Show or hide the password", tabIndex: 0 };
  const submit = async (e: FormEvent) => {
    e.preventDefault();
    if (next !== again) return;
    setBusy(true);
    setError(undefined);
    try {
      await client.call("POST", "/v1/auth/password", { body: { old, new: next } });
      setOld("");
      setNext("");
      setAgain("");
      say("Your password is changed; your other sessions have ended");
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Panel title="Password">
      <form onSubmit={submit}>
        <Stack maw={400}>
          {error !== undefined && <Problem error={error} />}
          <PasswordInput
            label="Current password"
            autoComplete="current-password"
            required
            value={old}
            onChange={(e) => setOld(e.currentTarget.value)}
            visibilityToggleButtonProps={toggle}
          />
          <PasswordInput
            label="New password"
            autoComplete="new-password"
            required
            value={next}
            onChange={(e) => setNext(e.currentTarget.value)}
            visibilityToggleButtonProps={toggle}
          />
          <PasswordInput
            label="Repeat the new password"
            autoComplete="new-password"
            required
            value={again}
            onChange={(e) => setAgain(e.currentTarget.value)}
            error={differ && "It is not the same as above."}
            visibilityToggleButtonProps={toggle}
          />
          <div>
            <Button type="submit" loading={busy}>
              Change
            </Button>
          </div>
        </Stack>
      </form>
    </Panel>
  );
}

/** OneTimeCodes enables and disables codes of an authenticator app beside the password. */
function OneTimeCodes() {
  const { client } = useSession();
  const { say } = useActs();
  const [doing, setDoing] = useState<"enable" | "confirm" | "disable">();
  const [password, setPassword] = useState("");
  const [otp, setOTP] = useState("");
  const [secret, setSecret] = useState<TOTPSecret>();
  const [codes, setCodes] = useState<string[]>();
  const begin = (what: "enable" | "disable") => {
    setPassword("");
    setOTP("");
    setDoing(what);
  };
  const passwordField = (
    <PasswordInput
      label="Password"
      autoComplete="current-password"
      required
      value={password}
      onChange={(e) => setPassword(e.currentTarget.value)}
      visibilityToggleButtonProps={{ "aria-label": "Show or hide the password", tabIndex: 0 }}
      data-autofocus
    />
  );
  const codeField = (
    <TextInput
      label="One-time code"
      autoComplete="one-time-code"
      required
      maxLength={64}
      value={otp}
      onChange={(e) => setOTP(e.currentTarget.value)}
    />
  );
  return (
    <Panel
      title="One-time codes"
      actions={
        <>
          <Button onClick={() => begin("enable")}>Enable</Button>
          <Button variant="default" onClick={() => begin("disable")}>
            Disable
          </Button>
        </>
      }
    >
      <Text size="sm">
        Once enabled, your logins also ask for a code of an authenticator app. Access tokens do not.
      </Text>
      <Form
        title="Enable one-time codes"
        action="Continue"
        opened={doing === "enable"}
        onClose={() => setDoing((d) => (d === "enable" ? undefined : d))}
        submit={async () => {
          setSecret(await client.call<TOTPSecret>("POST", "/v1/auth/totp", { body: { password } }));
          setDoing("confirm");
        }}
      >
        {passwordField}
      </Form>
      <Form
        title="Add the secret to your app"
        action="Enable"
        opened={doing === "confirm"}
        onClose={() => setDoing(undefined)}
        submit={async () => {
          const r = await client.call<RecoveryCodes>("POST", "/v1/auth/totp/confirm", { body: { otp } });
          setCodes(r.codes ?? []);
        }}
      >
        {secret && <Copyable label="Secret" text={secret.secret} />}
        {secret && <Copyable label="Link for apps" text={secret.uri} />}
        {codeField}
      </Form>
      <Form
        title="Disable one-time codes"
        action="Disable"
        opened={doing === "disable"}
        onClose={() => setDoing(undefined)}
        submit={async () => {
          await client.call("POST", "/v1/auth/totp/remove", { body: { password, otp } });
          say("Your logins ask for the password alone");
        }}
      >
        {passwordField}
        {codeField}
      </Form>
      {codes && (
        <Once title="Recovery codes" onClose={() => setCodes(undefined)}>
          <Copyable label="Recovery codes" text={codes.join("\n")} />
          <Text size="sm">Each works once in place of a code. Your other sessions have ended.</Text>
        </Once>
      )}
    </Panel>
  );
}

function AccessTokens() {
  const { client, who } = useSession();
  const { ask } = useActs();
  const q = useGet<List<AccessToken>>("/v1/access-tokens");
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<NewAccessToken>();
  const [name, setName] = useState("");
  const [ttl, setTTL] = useState("2160h");
  const [scopes, setScopes] = useState<string[]>([]);
  return (
    <Panel
      title="Access tokens for programs"
      actions={!who?.token && <Button onClick={() => setMaking(true)}>New token</Button>}
    >
      <Loaded of={q}>
        {(list) => (
          <Rows
            label="Access tokens"
            head={["Name", "Made", "Good", "May", ""]}
            empty="You have none. Programs use one instead of your password to access the API."
            rows={list.items.map((t) => ({
              key: t.id,
              cells: [
                t.name,
                clock(t.created),
                until(t.expires),
                t.scopes?.length ? t.scopes.join(", ") : "all that you may",
                <Button
                  size="xs"
                  variant="default"
                  aria-label={`Delete ${t.name}`}
                  onClick={() =>
                    ask({
                      title: `Delete ${t.name}?`,
                      text: "Programs that use it are refused at once.",
                      action: "Delete",
                      danger: true,
                      run: async () => {
                        await client.call("DELETE", `/v1/access-tokens/${encodeURIComponent(t.id)}`);
                        q.reload();
                      },
                      done: `${t.name} is deleted`,
                    })
                  }
                >
                  Delete
                </Button>,
              ],
            }))}
          />
        )}
      </Loaded>
      <Form
        title="New access token"
        action="Make"
        opened={making}
        onClose={() => setMaking(false)}
        submit={async () => {
          setMade(
            await client.call<NewAccessToken>("POST", "/v1/access-tokens", {
              body: { name, ttl: ttl || undefined, scopes: scopes.length ? scopes : undefined },
            }),
          );
          setName("");
          setScopes([]);
          q.reload();
        }}
      >
        <TextInput
          label="Name"
          description="What it is for, such as backup"
          required
          maxLength={63}
          value={name}
          onChange={(e) => setName(e.currentTarget.value)}
          data-autofocus
        />
        <Select label="Life" data={lives} value={ttl} onChange={(v) => setTTL(v ?? "")} allowDeselect={false} />
        <MultiSelect
          label="It may only"
          description="None chosen: all your permissions"
          data={(who?.scopes ?? []).map((s) => ({ value: s, label: scopeWords(s) }))}
          value={scopes}
          onChange={setScopes}
          clearable
          clearButtonProps={{ "aria-label": "All your permissions" }}
        />
      </Form>
      {made && (
        <Once title={`Access token ${made.name}`} onClose={() => setMade(undefined)}>
          <Copyable label="The token" text={made.text} />
          <Text size="sm">
            A program sends it as “Authorization: Bearer …”; the command line takes it with{" "}
            <Code>skerry login --token</Code>.
          </Text>
        </Once>
      )}
    </Panel>
  );
}
