{{/* The broker as a container: in a pod of its own, or in a gateway's. */}}
{{- define "broker.container" -}}
name: broker
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/broker/profiles.yaml]
env:
  - {name: GOMEMLIMIT, value: {{ .Values.goMemLimit | quote }}}
  - {name: BROKER_API, value: "http://{{ .Values.config.listen.api }}"} # whom `broker health` asks
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
# A kubelet asks from outside of the pod's network, where the API does not answer.
startupProbe:
  exec: {command: [/broker, health]}
  timeoutSeconds: 5
  periodSeconds: 2
  failureThreshold: 60 # the database may have to be recovered
readinessProbe:
  exec: {command: [/broker, health, --ready]}
  timeoutSeconds: 5
livenessProbe:
  exec: {command: [/broker, health]}
  timeoutSeconds: 5
  periodSeconds: 20
resources: {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - {name: broker-config, mountPath: /etc/broker, readOnly: true}
  - {name: broker-state, mountPath: /var/lib/broker}
  - {name: broker-vault, mountPath: /var/run/secrets/vault, readOnly: true}
  {{- if .Values.secretName }}
  - {name: broker-secrets, mountPath: /run/secrets/broker, readOnly: true}
  {{- end }}
{{- end }}

{{/* Its volumes, without the one of the database. */}}
{{- define "broker.volumes" -}}
- name: broker-config
  configMap: {name: {{ include "broker.name" . }}}
- name: broker-vault
  projected:
    sources:
      - serviceAccountToken:
          path: token
          audience: {{ .Values.vault.audience | quote }}
          expirationSeconds: {{ .Values.vault.tokenSeconds }}
{{- if .Values.secretName }}
- name: broker-secrets
  secret: {secretName: {{ .Values.secretName | quote }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* What a pod with a broker in it needs besides: files by its group, and no token of the cluster's. */}}
{{- define "broker.pod" -}}
serviceAccountName: {{ include "broker.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {fsGroup: 65532, fsGroupChangePolicy: OnRootMismatch}
{{- end }}
