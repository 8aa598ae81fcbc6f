import { Button, Center, Paper, PasswordInput, Stack, Text, TextInput, Title } from "@mantine/core";
import { type FormEvent, useEffect, useState } from "react";
import { needsCode } from "../api/client";
import { Problem } from "../parts/basics";
import { useSession } from "../state/session";

/** LoginForm asks for user and password, and for a one-time code once the server does. */
export function LoginForm({ user: fixed }: { user?: string }) {
  const { client, login } = useSession();
  const [user, setUser] = useState(fixed ?? "");
  const [password, setPassword] = useState("");
  const [otp, setOTP] = useState<string>();
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const [provider, setProvider] = useState(false);
  useEffect(() => {
    client.offersProvider().then(setProvider, () => {}); // without an answer there is the password
  }, [client]);
  const leave = async () => {
    setBusy(true);
    setError(undefined);
    try {
      window.location.assign(await client.beginAtProvider());
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  const submit = async (e: FormEvent) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await login(user, password, otp);
    } catch (e) {
      const first = otp === undefined && needsCode(e);
      setError(first ? undefined : e);
      if (needsCode(e)) setOTP("");
      setBusy(false);
    }
  };
  return (
    <form onSubmit={submit}>
      <Stack>
        {error !== undefined && <Problem error={error} />}
        <TextInput
          label="User"
          autoComplete="username"
          required
          value={user}
          onChange={(e) => setUser(e.currentTarget.value)}
          readOnly={fixed !== undefined}
          data-autofocus={!fixed || undefined}
          autoFocus={!fixed}
        />
        <PasswordInput
          label="Password"
          autoComplete="current-password"
          required
          value={password}
          onChange={(e) => setPassword(e.currentTarget.value)}
          autoFocus={fixed !== undefined}
          visibilityToggleButtonProps={{ "aria-label": "Show or hide the password", tabIndex: 0 }}
        />
        {otp !== undefined && (
          <TextInput
            label="One-time code"
            description="Of your authenticator app, or a recovery code"
            autoComplete="one-time-code"
            required
            maxLength={64}
            value={otp}
            onChange={(e) => setOTP(e.currentTarget.value)}
            autoFocus
          />
        )}
        <Button type="submit" loading={busy}>
          Log in
        </Button>
        {provider && (
          <Button variant="default" onClick={leave} disabled={busy}>
            Log in at the identity provider
          </Button>
        )}
      </Stack>
    </form>
  );
}

export function Login() {
  const { error } = useSession();
  useEffect(() => {
    document.title = "Log in · Skerry";
  }, []);
  return (
    <Center component="main" mih="100vh" p="md">
      <Paper withBorder p="xl" radius="md" w="100%" maw={400}>
        <Stack>
          <Title order={1} size="h2">
            Skerry
          </Title>
          {error && (
            <Text size="sm" c="red" role="alert">
              {error}
            </Text>
          )}
          <LoginForm />
          <Text size="sm" c="dimmed">
            The first admin’s password is in the file <code>admin-password</code> of the server’s data directory.
          </Text>
        </Stack>
      </Paper>
    </Center>
  );
}
