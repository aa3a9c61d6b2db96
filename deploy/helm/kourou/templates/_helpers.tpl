{{/*
What the templates share. "kourou.services" is the table of all services, which they loop over.
*/}}

{{/* Labels that select the pods of a service: (list $ NAME). */}}
{{- define "kourou.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* All labels of an object: (list $ NAME). */}}
{{- define "kourou.labels" -}}
{{- $root := index . 0 -}}
{{ include "kourou.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/*
Every service by its name in docker-compose.yml. `values`: its key in values.yaml; `settings`: its files
in /etc/kourou; `pair`: its pair of keys; `access`: its files of the Secret `access`; `server`, `guard`,
`store`: it accepts connections, knows the keys of brokers, has a log; `ports`: for clients; `members`:
for replicas of its log; `start`: the seconds that a start may take; `misses`: how often it may be unready.
Ports and paths are those of the files in deploy.
*/}}
{{- define "kourou.services" -}}
{{- if gt (len .Release.Name) 30 }}{{ fail "the name of the release has more than 30 characters" }}{{ end -}}
{{- $at := printf "$(POD_NAME).%s-%%s.%s.svc" .Release.Name .Release.Namespace -}}
{{- $brokers := int .Values.broker.replicas -}}
namesrv:
  values: namesrv
  enabled: true
  replicas: {{ .Values.namesrv.replicas }}
  command: [namesrv, -c, /etc/kourou/namesrv.conf, --insecure-network]
  settings: [namesrv.conf]
  pair: namesrv
  access: [access.keys]
  server: true
  guard: true
  ports: {zmq: 19876, tcp: 9876}
  admin: 18080
  start: 60
broker:
  values: broker
  enabled: true
  replicas: {{ $brokers }}
  command: [broker, -c, /etc/kourou/broker.conf, --insecure-network]
  settings: [broker.conf, users.toml]
  pair: broker
  access: [access.keys, admin.secret]
  server: true
  guard: true
  store: true
  ports: {zmq: 20911, tcp: 10911}
  members: 20912
  admin: 18081
  start: 120
  environment:
    KOUROU_BROKER_NAME: broker-$(POD_INDEX)
    KOUROU_ADVERTISED_LISTENERS: {{ $host := printf $at "broker" }}internal={{ $host }}:20911;tcp:internal={{ $host }}:10911
    {{- with .Values.eventStore.url }}
    KOUROU_EVENT_STORE_URL: {{ . | quote }}
    {{- if $.Values.eventStore.secret }}
    KOUROU_EVENT_STORE_PASSWORD_FILE: /run/kourou/access/event-store-password
    {{- end }}
    {{- end }}
ha-replica:
  values: haReplica
  enabled: {{ .Values.haReplica.enabled }}
  replicas: {{ $brokers }}
  command: [ha-replica, -c, /etc/kourou/ha-replica.conf, --insecure-network]
  settings: [ha-replica.conf, users.toml]
  pair: ha-replica
  access: [access.keys, admin.secret]
  server: true
  guard: true
  store: true
  ports: {zmq: 20931, tcp: 10931}
  members: 20932
  admin: 18082
  start: 120
  environment:
    KOUROU_BROKER_NAME: broker-$(POD_INDEX)
    KOUROU_ADVERTISED_LISTENERS: {{ $host = printf $at "ha-replica" }}internal={{ $host }}:20931;tcp:internal={{ $host }}:10931
raft:
  values: raft
  enabled: {{ .Values.raft.enabled }}
  replicas: 3
  command: [ha-replica, -c, /etc/kourou/raft.conf, --insecure-network]
  settings: [raft.conf, users.toml]
  pair: raft
  access: [access.keys, admin.secret]
  server: true
  guard: true
  store: true
  ports: {zmq: 20951, tcp: 10951}
  members: 20952
  admin: 18083
  start: 120
  environment:
    KOUROU_D_LEGER_SELF_ID: n$(POD_INDEX)
    {{- $raft := printf "%s-raft" .Release.Name }}
    KOUROU_D_LEGER_PEERS: {{ range $i := until 3 }}{{ if $i }};{{ end }}n{{ $i }}-{{ $raft }}-{{ $i }}.{{ $raft }}.{{ $.Release.Namespace }}.svc:20952{{ end }}
    KOUROU_LISTEN_PORT: "10951"
    KOUROU_ADVERTISED_LISTENERS: {{ $host = printf $at "raft" }}internal={{ $host }}:20951;tcp:internal={{ $host }}:10951
filter-server:
  values: filterServer
  enabled: {{ .Values.filterServer.enabled }}
  replicas: {{ $brokers }}
  command: [filter-server, -c, /etc/kourou/filter-server.conf, --insecure-network]
  settings: [filter-server.conf]
  pair: filter-server-$(POD_INDEX)
  server: true
  # A user of its own, and the profile that its sandbox needs.
  user: 10002
  seccomp: {{ .Values.filterServer.seccompProfile | quote }}
  folder: /
  ports: {zmq: 20915, tcp: 10915}
  admin: 18181
  start: 60
  environment:
    HOME: /tmp
    KOUROU_FILTER_SERVER_INDEX: "0"
    KOUROU_CONNECT_WHICH_BROKER: {{ $broker := printf "%s-broker" .Release.Name }}{{ $broker }}-$(POD_INDEX).{{ $broker }}.{{ .Release.Namespace }}.svc:20911
    KOUROU_ADVERTISED_LISTENERS: {{ $host = printf $at "filter-server" }}internal={{ $host }}:20915;tcp:internal={{ $host }}:10915
console:
  values: console
  kind: Deployment
  enabled: true
  replicas: 1
  command: [console, -c, /etc/kourou/console.conf, --insecure-network]
  settings: [console.conf]
  pair: console
  ports: {http: 8080}
  admin: 18380
  health: http
  start: 180
  environment:
    KOUROU_SIGN_IN: users
    {{- $console := printf "%s-console" .Release.Name }}
    KOUROU_CONSOLE_NAMES: {{ concat (list $console (printf "%s.%s" $console .Release.Namespace) (printf "%s.%s.svc" $console .Release.Namespace)) .Values.console.names | join ";" | quote }}
    {{- $https := and (ne .Values.tls.secret "") (eq .Values.tls.mode "enforcing") | ternary "https://" "" }}
    KOUROU_SPARK_ETL_ADDRESS: {{ ternary (printf "%s%s-spark-etl:18281" $https .Release.Name) "" .Values.sparkEtl.enabled | quote }}
spark-etl:
  values: sparkEtl
  enabled: {{ .Values.sparkEtl.enabled }}
  replicas: 1
  command: [spark-etl, run, -c, /etc/kourou/spark-etl.conf, --jobs, /etc/kourou/spark-etl.toml, --insecure-network]
  settings: [spark-etl.conf, spark-etl.toml]
  pair: pipeline
  image: {{ .Values.sparkImage | quote }}
  # Java unpacks Parquet's native codecs there.
  tmp: 512Mi
  grace: 90
  ports: {}
  admin: 18281
  start: 300
  misses: 12
  environment:
    KOUROU_SPARK_MASTER: local[2]
    SPARK_CONF_DIR: /etc/spark
{{- end }}

{{/* Not empty if a service has TLS: (list $ ENTRY). HTTP alone cannot be in clear text and TLS at once. */}}
{{- define "kourou.usesTls" -}}
{{- $values := (index . 0).Values -}}
{{- if and $values.tls.secret (or (index . 1).server (eq $values.tls.mode "enforcing")) -}}yes{{- end -}}
{{- end }}

{{/* The scheme of a service's probes: (list $ ENTRY). */}}
{{- define "kourou.scheme" -}}
{{- if and (include "kourou.usesTls" .) (eq (index . 0).Values.tls.mode "enforcing") }}HTTPS{{ else }}HTTP{{ end -}}
{{- end }}

{{/* The variables of a service: (list $ NAME ENTRY). Those of values.yaml win. */}}
{{- define "kourou.environment" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $it := index . 2 -}}
{{- $all := dict
  "KOUROU_CURVE_KEY_FILE" (printf "/run/kourou/keys/%s.key_secret" $it.pair)
  "KOUROU_CURVE_SERVER_KEY" "/run/kourou/public" -}}
{{- with $root.Values.tracing -}}
{{- if .endpoint -}}
{{- $all = merge $all (dict
  "OTEL_EXPORTER_OTLP_ENDPOINT" .endpoint
  "OTEL_TRACES_SAMPLER" "parentbased_traceidratio"
  "OTEL_TRACES_SAMPLER_ARG" (.share | toString)) -}}
{{- else -}}
{{- $_ := set $all "OTEL_TRACES_EXPORTER" "none" -}}
{{- end -}}
{{- end -}}
{{- if include "kourou.usesTls" (list $root $it) -}}
{{- $all = merge $all (dict
  "KOUROU_TLS_SERVER_MODE" $root.Values.tls.mode
  "KOUROU_TLS_SERVER_CERT_PATH" "/run/kourou/tls/tls.crt"
  "KOUROU_TLS_SERVER_KEY_PATH" "/run/kourou/tls/tls.key") -}}
{{- if ne $root.Values.tls.clientAuth "none" -}}
{{- $all = merge $all (dict
  "KOUROU_TLS_SERVER_NEED_CLIENT_AUTH" $root.Values.tls.clientAuth
  "KOUROU_TLS_SERVER_TRUST_CERT_PATH" "/run/kourou/tls/ca.crt") -}}
{{- end -}}
{{- if and (eq $name "console") $root.Values.sparkEtl.enabled -}}
{{- $_ := set $all "KOUROU_TLS_CLIENT_TRUST_CERT_PATH" "/run/kourou/tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if $it.server -}}
{{- $_ := set $all "KOUROU_CURVE_CLIENTS" "/run/kourou/public" -}}
{{- end -}}
{{- if $it.guard -}}
{{- $all = merge $all (dict
  "KOUROU_CURVE_MEMBERS" "/run/kourou/members"
  "KOUROU_ACCESS_KEY_FILE" "/run/kourou/access/access.keys") -}}
{{- end -}}
{{- if $it.store -}}
{{- $_ := set $all "KOUROU_INITIAL_USERS_FILE" "/etc/kourou/users.toml" -}}
{{- end -}}
{{- if not (has $name (list "namesrv" "filter-server")) -}}
{{- $_ := set $all "NAMESRV_ADDR" (include "kourou.namesrvAddr" $root) -}}
{{- end -}}
{{- $own := index $root.Values $it.values -}}
{{- range list ($it.environment | default (dict)) $own.environment -}}
{{- range $key, $value := . -}}{{- $_ := set $all $key $value -}}{{- end -}}
{{- end -}}
{{- /* $(POD_NAME) and $(POD_INDEX) are replaced in what follows them. */ -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- if not $it.kind }}
- name: POD_INDEX
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
{{- end }}
{{- range $key, $value := $all }}
- name: {{ $key }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* All name servers, as NAMESRV_ADDR. */}}
{{- define "kourou.namesrvAddr" -}}
{{- $name := printf "%s-namesrv" .Release.Name -}}
{{- range $i := until (int .Values.namesrv.replicas) -}}
{{- if $i }};{{ end }}{{ $name }}-{{ $i }}.{{ $name }}.{{ $.Release.Namespace }}.svc:9876
{{- end -}}
{{- end }}

{{/* The peers of a network policy that stand for the collector of traces. */}}
{{- define "kourou.collector" -}}
{{- $host := regexReplaceAll ":[0-9]+$" (urlParse .Values.tracing.endpoint).host "" -}}
{{- $names := splitList "." $host -}}
{{- if .Values.networkPolicy.collector -}}
{{- toYaml .Values.networkPolicy.collector -}}
{{- else if regexMatch `^[0-9]+(\.[0-9]+){3}$` $host -}}
- ipBlock: {cidr: {{ $host }}/32}
{{- else if regexMatch `^[a-z0-9-]+(\.[a-z0-9-]+(\.svc(\.cluster\.local)?\.?)?)?$` $host -}}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ eq (len $names) 1 | ternary .Release.Namespace (index (append $names "") 1) }}
{{- else -}}
{{- fail "networkPolicy.collector must say where tracing.endpoint is: its name is not one of this cluster" -}}
{{- end -}}
{{- end }}

{{/* A file of /etc/kourou: (list $ NAME). */}}
{{- define "kourou.file" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- if eq $name "users.toml" -}}
{{- include "kourou.users" $root -}}
{{- else -}}
{{- $root.Files.Get (printf "files/%s" $name) -}}
{{- end -}}
{{- end }}

{{/*
deploy/users.toml for this release: one pair of keys for all pods of a service, but one for each filter
server, which is a node of one broker.
*/}}
{{- define "kourou.users" -}}
{{- $text := regexReplaceAll `(?m)^#.*\n` (.Files.Get "files/users.toml") "" -}}
{{- $text = regexReplaceAll `(?m)^ *".*/(broker-b|ha-replica-b|raft-n[12])\.key",\n` $text "" | replace "/raft-n0.key" "/raft.key" -}}
# The users of deploy/users.toml, whom each broker creates at a start if they do not exist.
{{ range rest (regexSplit `(?m)^\[` $text -1) }}
{{- $table := printf "[%s" . }}
{{- if hasPrefix "[filter-server]" $table }}
{{- range $i := until (ternary (int $.Values.broker.replicas) 0 $.Values.filterServer.enabled) }}
{{- $name := printf "filter-server-%d" $i }}
{{ $table | replace "[filter-server]" (printf "[%s]" $name) | replace "/broker-a/filter-server" (printf "/broker-%d/%s" $i $name) | replace "/filter-server.key" (printf "/%s.key" $name) | trim }}
{{ end }}
{{- else if not (hasPrefix "[filter-server-" $table) }}
{{ $table | trim }}
{{ end }}
{{- end }}
{{- end }}

{{/* What files/make_keys.py makes, as JSON. */}}
{{- define "kourou.plan" -}}
{{- $pairs := dict "host" (dict "secret" "keys-host" "addresses" (list)) -}}
{{- range $name, $it := include "kourou.services" . | fromYaml -}}
{{- $secret := printf "keys-%s" $name -}}
{{- if eq $name "filter-server" -}}
{{- range $i := until (ternary (int $it.replicas) 0 $it.enabled) -}}
{{- $full := printf "%s-%s" $.Release.Name $name -}}
{{- $host := printf "%s-%d.%s.%s.svc" $full $i $full $.Release.Namespace -}}
{{- $_ := set $pairs (printf "%s-%d" $name $i) (dict "secret" $secret "addresses" (list $host)) -}}
{{- end -}}
{{- else -}}
{{- $addresses := list -}}
{{- range compact (list $it.ports.zmq $it.members) -}}
{{- $addresses = append $addresses (printf "*:%d" (int .)) -}}
{{- end -}}
{{- $_ := set $pairs $it.pair (dict "secret" $secret "addresses" $addresses) -}}
{{- end -}}
{{- end -}}
{{- dict "prefix" .Release.Name "labels" (include "kourou.selector" (list . "keys") | fromYaml) "pairs" $pairs "ring" "host" | toJson -}}
{{- end }}

{{/* The security context of a pod: (list USER PROFILE), where an empty PROFILE is the runtime's own. */}}
{{- define "kourou.podSecurity" -}}
{{- $user := index . 0 | default 10001 | int -}}
runAsNonRoot: true
runAsUser: {{ $user }}
runAsGroup: {{ $user }}
fsGroup: {{ $user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
{{- with index . 1 }}
  type: Localhost
  localhostProfile: {{ . }}
{{- else }}
  type: RuntimeDefault
{{- end }}
{{- end }}

{{/* The security context of every container. */}}
{{- define "kourou.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The annotations of what runs before an installation or an upgrade, by its order. The rights of
the job, which comes last, end with it; the job itself stays after a failure, for its log. */}}
{{- define "kourou.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded{{ if . }},hook-failed{{ end }}
{{- end }}
