{{- define "broker.name" -}}
{{ printf "%s-broker" .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "broker.selector" -}}
app.kubernetes.io/name: broker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "broker.labels" -}}
{{ include "broker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "broker.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "broker.name" .) }}
{{- end }}

{{/* A duration such as 1m30s in milliseconds. */}}
{{- define "broker.milliseconds" -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|h|m|s)" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = add $sum (mul (regexFind "[0-9]+" .) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit)) -}}
{{- end -}}
{{ $sum }}
{{- end }}

{{/* The first whole second after delay, drain and the 9.5 s of the clean-up, and 30 at the least: what Kubernetes
     gives without being asked. */}}
{{- define "broker.grace" -}}
{{- $stop := .Values.config.stop | default dict -}}
{{- $delay := include "broker.milliseconds" ($stop.delay | default "0s") -}}
{{- $drain := include "broker.milliseconds" ($stop.drain | default "20s") -}}
{{ max 30 (add 1 (div (add $delay $drain 9500) 1000)) }}
{{- end }}

{{/* profiles.yaml: the values, with the grace period that the pod gets. A configuration needs a caller: until there
     is one it is "nobody", since nobody knows what has this hash. */}}
{{- define "broker.profiles" -}}
{{- $stop := merge (dict "grace_period" (printf "%ss" (include "broker.grace" .))) (.Values.config.stop | default dict) -}}
{{- $nobody := dict "nobody" (dict "roles" (list "audit") "bearer_sha256" (list (repeat 64 "f"))) -}}
{{- $config := merge (dict "stop" $stop "callers" (.Values.config.callers | default $nobody)) .Values.config -}}
{{- range $key := list "profiles" "servers" }}{{ if not (get $config $key) }}{{ $_ := unset $config $key }}{{ end }}{{ end -}}
{{ toYaml $config }}
{{- end }}

{{/* What mode sidecar refuses: a tool that does something, whose repeat another pod would not know. */}}
{{- define "broker.judge" -}}
{{- if and (eq .Values.mode "sidecar") (ne .Values.perPodKeys "accepted") -}}
{{- range $server, $entry := .Values.config.servers -}}
{{- range $tool, $rule := $entry.tools -}}
{{- if and $rule.enabled (ne ($rule.effect | default "write") "read") -}}
{{- fail (printf "mode sidecar: %s of %s is not `effect: read`. Each pod knows its own request keys alone, so a call that is sent again to another pod may run twice. Use mode standalone, or write perPodKeys: accepted" $tool $server) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
