job "old" {
  type = "batch"
  periodic {
    cron             = "@daily"
    prohibit_overlap = true
  }
  parameterized { payload = "required" }
  group "main" {
    network {
      port "http" {}
    }
    vault {}
    task "main" {
      driver = "raw_exec"
      config {
        image   = "example/main"
        volumes = ["local:/x"]
        comand  = "x"
      }
      env {
        WHERE = "${attr.unique.hostname}"
      }
      template {
        destination = "local/x"
        data        = "{{ range service \"db\" }}{{ .Address }}{{ end }}"
      }
      artifact { source = "https://example.org/x" }
    }
  }
}
