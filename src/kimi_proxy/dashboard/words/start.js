export default {
  en: {
    how: "Start your agent through this address, in another terminal; its requests appear here live:",
    init: "Or write the address into the agent’s own settings, for every start (--undo reverts it). In a clone, the command is .venv/bin/kimi-proxy:",
    demo: "Or watch a scripted working day, without a key or a network:",
    try: "Try it on a text of your own",
  },
  fr: {
    how: "Lancez votre agent par cette adresse, dans un autre terminal ; ses requêtes apparaîtront ici au fil de l’eau :",
    init: "Ou écrivez l’adresse dans les réglages de l’agent, pour tous ses lancements (--undo l’enlève). Dans un clone, la commande est .venv/bin/kimi-proxy :",
    demo: "Ou regardez une journée de travail rejouée, sans clé ni réseau :",
    try: "Essayer sur un texte à vous",
  },
};
