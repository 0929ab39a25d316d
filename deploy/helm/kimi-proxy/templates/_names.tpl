{{- define "kimi-proxy.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "kimi-proxy.selector" -}}
app.kubernetes.io/name: kimi-proxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kimi-proxy.labels" -}}
{{ include "kimi-proxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "kimi-proxy.secret" -}}
{{- .Values.secret.name | default (include "kimi-proxy.name" .) }}
{{- end }}

{{- define "kimi-proxy.hosts" -}}
{{- $name := include "kimi-proxy.name" . }}
{{- $own := list $name (printf "%s:%v" $name .Values.service.port) (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s:%v" $name .Release.Namespace .Values.service.port) }}
{{- $ingress := ternary (list .Values.ingress.host) list (and .Values.ingress.enabled (ne .Values.ingress.host "")) }}
{{- concat $own $ingress .Values.allowedHosts | join "," }}
{{- end }}
